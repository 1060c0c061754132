"""The item that a page holds."""

from typing import TypedDict

from tests.support.lab.draws import draws

KINDS = ("Lamp", "Café table", "Kettle", "Größenmesser", "Bookend", "Чайник", "茶碗", "Salt & pepper set")
FINISHES = ("plain", "blue", "oak", "matt", "<limited>", "brass")


class Item(TypedDict):
    """What the page's ``article`` says, each value as it stands there."""

    id: str
    title: str
    price: str
    stock: str


def item_of(seed: int, identifier: str, title: str | None = None) -> Item:
    """The item of that identifier; a title that is given stands for the drawn one."""
    kind, finish, cents, stock = draws(seed, f"item/{identifier}", 4)
    drawn = f"{KINDS[kind % len(KINDS)]} {FINISHES[finish % len(FINISHES)]} {identifier}"
    return {
        "id": identifier,
        "title": drawn if title is None else title,
        "price": f"{cents % 100_000 / 100:.2f}",
        "stock": str(stock % 500),
    }
