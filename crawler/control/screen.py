"""What the operator sees of a crawl in a terminal of 80 columns."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from crawler.control.crawls import CrawlStatus, DeadLetter, WaitingRetry
from crawler.control.hosts import HostStatus
from crawler.frontier.account import Audit

NAME_WIDTH = 28
HOST_WIDTH = 32
SHOWN_WORKERS = 12
THOUSANDS_FROM, MILLIONS_FROM = 10_000, 1_000_000


def _facts(status: CrawlStatus) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    waiting = f"{status.waiting:,}" + (f" (+{status.delayed:,} delayed)" if status.delayed else "")
    table.add_row("queued", waiting, "in flight", f"{status.in_flight:,}", "done", f"{status.done:,}")
    table.add_row("seen", f"{status.seen:,}", "dead", f"{status.dead:,}", "retried", f"{status.retried:,}")
    return table


def status_panel(status: CrawlStatus) -> RenderableType:
    """The crawl's counts and its workers."""
    head = Text.assemble((status.crawl, "bold"), f"  {status.state}")
    if status.state == "absent":
        return Group(head, Text(f"nothing in Redis yet; {status.unread:,} start URLs unread"))
    head.append(f", run {status.generation}")
    if status.unread:
        head.append(f", {status.unread:,} start URLs unread")
    parts: list[RenderableType] = [head, _facts(status)]
    if status.seen_filter == "bloom":
        parts.append(Text(f"seen filter: bloom, wrong for {status.false_positive_rate:.1e} of new URLs", style="dim"))
    if status.over_budget or status.trapped:
        parts.append(
            Text(f"left out: {status.over_budget:,} over a budget, {status.trapped:,} by their shape", style="dim")
        )
    if status.workers:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for title, justify in (
            ("worker", "left"),
            ("pages", "right"),
            ("items", "right"),
            ("held", "right"),
            ("heartbeat", "left"),
        ):
            table.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        for worker in status.workers[:SHOWN_WORKERS]:
            alive = "alive" if worker.alive_seconds > 0 else "[red]lapsed[/red]"
            table.add_row(
                worker.name[-NAME_WIDTH:], f"{worker.pages:,}", f"{worker.items:,}", f"{worker.held:,}", alive
            )
        parts.append(table)
        if len(status.workers) > SHOWN_WORKERS:
            parts.append(Text(f"and {len(status.workers) - SHOWN_WORKERS} more", style="dim"))
    return Group(*parts)


def host_state(host: HostStatus) -> str:
    """What holds for a host, in a few words."""
    words = []
    if host.order == "block":
        words.append("refused by an operator")
    elif host.order == "pause":
        words.append("paused by an operator")
    elif host.order == "slow":
        words.append(f"slowed to one in {host.span_seconds:.3g} s by an operator")
    if host.blocked_seconds:
        words.append(f"blocked for {host.blocked_seconds:.3g} s")
    if host.trying:
        words.append(f"failed {host.failures} times, being tried")
    elif host.slowed_seconds:
        words.append(f"slowed to one in {host.slowed_seconds:.3g} s")
    return ", ".join(words) or "ready"


def host_table(hosts: Sequence[HostStatus]) -> RenderableType:
    """Hosts, one a line."""
    if not hosts:
        return Text("no host has waiting URLs, an order, a block or a slow-down")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("host", no_wrap=True, max_width=HOST_WIDTH)
    table.add_column("waiting", justify="right", no_wrap=True)
    table.add_column("under way", justify="right", no_wrap=True)
    table.add_column("state")
    for host in hosts:
        flight = "" if host.in_flight is None else f"{host.in_flight} of {host.cap}"
        table.add_row(Text(host.host), f"{host.waiting:,}", flight, host_state(host))
    return table


def host_facts(host: HostStatus) -> RenderableType:
    """All that holds for one host."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rule = "none"
    if host.strategy == "token_bucket":
        rule = f"token_bucket, one request in {host.span_seconds:.3g} s, burst {host.burst}"
    elif host.strategy:
        rule = f"{host.strategy}, {host.burst} requests in {host.span_seconds:.3g} s"
    next_url = "none waits" if host.wait_seconds is None else f"in {host.wait_seconds:.3g} s"
    cap = "any number" if host.in_flight is None else f"{host.in_flight} of {host.cap}"
    for name, value in (
        ("state", host_state(host)),
        ("waiting URLs", f"{host.waiting:,}"),
        ("next URL", next_url),
        ("rule", rule),
        ("under way", cap),
        ("failures in a row", str(host.failures)),
    ):
        table.add_row(name, Text(value))
    return Group(Text(host.host, style="bold"), table)


class Rates:
    """Pages and items a second between two looks."""

    def __init__(self) -> None:
        self._last: tuple[float, int, int] | None = None
        self.pages = 0.0
        self.items = 0.0

    def look(self, now: float, pages: int, items: int) -> None:
        """Takes the counts of this moment; a second passes at least between two that count."""
        if self._last is None:
            self._last = (now, pages, items)
            return
        at, before, before_items = self._last
        if now - at >= 1.0:
            self.pages = (pages - before) / (now - at)
            self.items = (items - before_items) / (now - at)
            self._last = (now, pages, items)


def progress_line(status: CrawlStatus, rates: Rates, seconds: float) -> str:
    """One line of progress, at most 80 columns."""
    alive = sum(worker.alive_seconds > 0 for worker in status.workers)
    return (
        f"{seconds:4.0f} s  {rates.pages:.0f} pages/s  {rates.items:.0f} items/s  "
        f"queued {_short(status.waiting + status.delayed)}  in flight {_short(status.in_flight)}  "
        f"done {_short(status.done)}  workers {alive}"
    )


def progress_panel(status: CrawlStatus, rates: Rates, seconds: float) -> RenderableType:
    """Progress as it is drawn anew in a terminal."""
    head = Text(f"{seconds:.0f} s   {rates.pages:.0f} pages/s   {rates.items:.0f} items/s", style="bold green")
    return Group(head, status_panel(status))


def _short(count: int) -> str:
    """A count in at most six characters."""
    if count < THOUSANDS_FROM:
        return str(count)
    return f"{count / 1e3:.1f}k" if count < MILLIONS_FROM else f"{count / 1e6:.1f}M"


def summary_lines(status: CrawlStatus) -> list[str]:
    """The end of a run in a few lines."""
    lines = [
        f"{status.crawl}: {status.state}, {status.done:,} pages done, {status.dead:,} dead letters, "
        f"{status.waiting + status.delayed:,} queued, {status.in_flight:,} in flight"
    ]
    if status.returned:
        lines.append(f"{status.returned:,} leases were given back, by workers that stopped or of such that died")
    if status.dead:
        lines.append(f"see them with: trawlnet dead list {status.crawl}")
    return lines


def audit_panel(audit: Audit) -> RenderableType:
    """Both sides of the account, and what does not fit."""
    account = audit.account
    came = {"seeded": account.seeded, "discovered": account.discovered, "replayed": account.replayed}
    went = {
        "done": account.done,
        "dead": account.dead,
        "duplicate": account.duplicate,
        "over a budget": account.over_budget,
        "by their shape": account.trapped,
        **{f"filtered: {rule}": count for rule, count in account.filtered.items()},
        "waiting": account.waiting,
        "delayed": account.delayed,
        "in flight": account.in_flight,
    }
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for name, count in (*came.items(), ("= all that came in", sum(came.values()))):
        table.add_row(name, f"{count:,}")
    table.add_row()
    for name, count in (*went.items(), ("= all that is known", sum(went.values()))):
        table.add_row(name, f"{count:,}")
    parts: list[RenderableType] = [table, Text()]
    if audit.differences:
        parts += [Text(f"does not fit: {each}", style="red") for each in audit.differences]
    else:
        parts.append(Text("nothing is missing"))
    return Group(*parts)


def retry_table(retries: Sequence[WaitingRetry]) -> RenderableType:
    """New tries that wait, the next ones first."""
    if not retries:
        return Text("no new tries wait")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("in", justify="right", no_wrap=True)
    table.add_column("try", justify="right", no_wrap=True)
    table.add_column("cause", no_wrap=True)
    table.add_column("url", overflow="fold")
    table.add_column("reason", overflow="fold")
    for each in retries:
        table.add_row(
            f"{each.due_seconds:,.1f} s", str(each.attempt or ""), each.cause, Text(each.url or each.host), each.detail
        )
    return table


def dead_table(letters: Sequence[DeadLetter]) -> RenderableType:
    """Dead letters, newest first."""
    if not letters:
        return Text("no dead letters")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for title in ("id", "class", "url", "reason"):
        table.add_column(title, overflow="fold")
    for letter in letters:
        fields = letter.fields
        table.add_row(
            letter.id,
            fields.get("class", ""),
            fields.get("url", fields.get("host", "")),
            fields.get("reason", ""),
        )
    return table
