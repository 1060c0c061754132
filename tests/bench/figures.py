"""How a benchmark tells its figures: a table for people, a file for machines."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """A figure with a bound that it should keep."""

    name: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure keeps its bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def line(self) -> str:
        """The figure, its bound and whether it was met."""
        sign = ">=" if self.at_least else "<="
        return f"  {self.name:38} {self.value:>12.4g}   {sign} {self.bound:<8.4g} {'met' if self.met else 'MISSED'}"


def parser(name: str, about: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    found = argparse.ArgumentParser(prog=f"./run bench {name}", description=about)
    found.add_argument("--json", type=Path, default=None, help="file for the figures")
    return found


def tell(targets: list[Target], figures: dict[str, Any], file: Path | None) -> None:
    """Prints the targets and writes the figures."""
    print(*(target.line() for target in targets), sep="\n")
    if file is not None:
        file.write_text(json.dumps(figures, indent=1) + "\n")
