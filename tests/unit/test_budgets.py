"""Limits of size and naming that no linter has: files, functions, folders, and waiting by sleeping."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("crawler", "pipelines", "spiders", "settings", "tests")
FILE_LINES = 400
FUNCTION_LINES = 60
VAGUE = {"utils", "helpers", "common", "misc", "core", "services", "managers"}


def _sources(*folders: str, endings: tuple[str, ...] = (".py", ".lua")) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in endings)


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions_over(source: str, limit: int) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > limit:
                found.append((node.name, length))
    return found


def sleeps(source: str) -> list[int]:
    """Lines that call ``sleep`` with a time, by whatever name; ``asyncio.sleep(0)`` waits for nothing."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        yields_only = [ast.unparse(argument) for argument in node.args] == ["0"]
        if name == "sleep" and not yields_only:
            lines.append(node.lineno)
    return lines


def test_the_rules_see_what_they_forbid() -> None:
    assert functions_over("def f():\n    a = 1\n    return a\n", 2) == [("f", 3)]
    assert sleeps("import time\ntime.sleep(1)\nawait asyncio.sleep(0)\nsleep(x)\n") == [2, 4]


def test_files_are_short() -> None:
    sizes = {_shown(path): len(path.read_text("utf-8").splitlines()) for path in _sources(*FOLDERS)}
    assert sizes
    assert {path: lines for path, lines in sizes.items() if lines > FILE_LINES} == {}


def test_functions_are_short() -> None:
    over = {
        _shown(path): functions_over(path.read_text("utf-8"), FUNCTION_LINES)
        for path in _sources(*FOLDERS, endings=(".py",))
    }
    assert {path: functions for path, functions in over.items() if functions} == {}


def test_names_say_what_is_in_it() -> None:
    vague = [_shown(path) for path in _sources(*FOLDERS) if VAGUE & {path.stem, *path.relative_to(ROOT).parts}]
    assert vague == []


def test_no_test_waits_by_sleeping() -> None:
    tests = [path for path in _sources("tests", endings=(".py",)) if path.stem.startswith(("test_", "conftest"))]
    waiting = {_shown(path): sleeps(path.read_text("utf-8")) for path in tests}
    assert waiting
    assert {path: lines for path, lines in waiting.items() if lines} == {}
