"""Odd pages behind a login: the form of /login leads to a cookie that /member and /member/<i> demand."""

from urllib.parse import parse_qsl

from tests.support.lab.draws import draws
from tests.support.lab.markup import document
from tests.support.lab.message import Answer, answer_of
from tests.support.lab.visit import OddCase, Page, Visit, plain

LOGIN = {"user": "reader", "password": "open"}
MEMBER_PAGES = 10

CASES = (
    OddCase("/login", holds_item=False),
    OddCase("/member", 302, ends_at="/login", holds_item=False),
)


def login(visit: Visit) -> Answer:
    """The form by GET and HEAD; by POST its answer, 403 where a field is wrong."""
    token = _secret(visit, "token")
    if visit.request.method != "POST":
        form = (
            '<form action="/login" method="post"><input name="user"><input name="password" type="password">\n'
            f'<input name="token" type="hidden" value="{token}"><input type="submit"></form>\n'
        )
        return answer_of(200, document("Log in", form).encode())
    sent = dict(parse_qsl(visit.request.body.decode("latin-1")))
    if sent != LOGIN | {"token": token}:
        return plain(403, "Wrong user, password or token.")
    cookie = f"sid={_secret(visit, 'sid')}; Path=/; HttpOnly"
    return answer_of(302, b"", headers=[("Location", visit.on(0, "/member")), ("Set-Cookie", cookie)])


def member(visit: Visit) -> Answer:
    """An item and links for who has logged in on this host, else the way to the login."""
    if visit.cookies().get("sid") != _secret(visit, "sid"):
        return answer_of(302, b"", headers=[("Location", visit.on(0, "/login"))])
    if len(visit.parts) > 1:
        visit.number(1)
        return visit.item_page()
    return visit.item_page(visit.on(0, f"/member/{i}") for i in range(MEMBER_PAGES))


def _secret(visit: Visit, kind: str) -> str:
    return f"{draws(visit.site.spec.seed, f'{kind}/{visit.request.host}', 1)[0]:08x}"


PAGES: dict[str, Page] = {"login": login, "member": member}
