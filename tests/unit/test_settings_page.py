"""The settings page has every setting, with its default and meaning."""

from pathlib import Path

from crawler.config import SETTINGS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def rows() -> list[str]:
    return [f"| `{name}` | `{setting.default!r}` | {setting.about} |" for name, setting in sorted(SETTINGS.items())]


def test_every_setting_is_on_the_page_as_the_code_has_it() -> None:
    page = PAGE.read_text(encoding="utf-8")

    missing = [row for row in rows() if row not in page]

    assert not missing


def test_the_page_has_no_setting_that_the_code_lacks() -> None:
    named = [
        line.split("`")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `CRAWLER_")
    ]

    assert sorted(named) == sorted(SETTINGS)
