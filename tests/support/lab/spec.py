"""The parameters of a lab, from which everything that it serves follows."""

from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

HOSTS_LIMIT = 5000
"""Each host is an address with a listening socket of its own."""
HOSTS_PER_NET = 250

PORT_LIMIT = 65535


@dataclass(frozen=True, slots=True)
class LabSpec:
    """What a lab looks like; the same values give the same pages, links, items and delays.

    More than 200 hosts need a limit of open files (``ulimit -n``) above hosts and connections together.
    Elsewhere than on Linux only 127.0.0.1 exists from the start, so that ``hosts=1`` is what works there.
    """

    pages: int = field(default=3000, metadata={"help": "content pages, /p/0 to /p/<pages-1>"})
    hosts: int = field(default=20, metadata={"help": "virtual hosts, 127.0.0.1 and on, all on one port"})
    seed: int = field(default=1, metadata={"help": "another seed is another site of the same size"})
    links: int = field(default=20, metadata={"help": "links on a page"})
    same_host: bool = field(
        default=False, metadata={"help": "links stay on their host, but /p/0 links to the first page of each"}
    )
    page_bytes: int = field(default=2048, metadata={"help": "least size of a page's body"})
    latency_seconds: float = field(
        default=0.0, metadata={"help": "mean delay of a page; each has its own, from half to one and a half"}
    )
    odd: bool = field(default=False, metadata={"help": "link the odd pages (/odd) from /p/0"})
    trap: bool = field(default=False, metadata={"help": "link the endless trap (/trap/0) from /p/0"})
    crawl_delay_seconds: float = field(default=0.0, metadata={"help": "Crawl-delay of robots.txt, 0: none"})
    port: int = field(default=0, metadata={"help": "0 takes a free one"})

    def __post_init__(self) -> None:
        self._check("hosts", 1, HOSTS_LIMIT)
        self._check("pages", self.hosts, None)
        self._check("links", 1, None)
        self._check("port", 0, PORT_LIMIT)
        for name in ("seed", "page_bytes", "latency_seconds", "crawl_delay_seconds"):
            self._check(name, 0, None)

    def address(self, host: int) -> str:
        """The IPv4 address of a host: 127.0.0.1 to 127.0.0.250, then 127.0.1.1 and on."""
        if not 0 <= host < self.hosts:
            raise ValueError(f"no host {host} in a lab of {self.hosts}; they count from 0")
        return f"127.0.{host // HOSTS_PER_NET}.{host % HOSTS_PER_NET + 1}"

    def base(self, host: int) -> str:
        """Scheme, address and port of a host, without a slash at the end."""
        if not self.port:
            raise ValueError("this LabSpec has no port, so no URLs; give one, or take Lab(...).spec")
        return f"http://{self.address(host)}:{self.port}"

    def arguments(self) -> list[str]:
        """This spec as arguments of the command."""
        found: list[str] = []
        for each in fields(self):
            value = getattr(self, each.name)
            if value is True:
                found.append(_option(each.name))
            elif value is not False:
                found += [_option(each.name), str(value)]
        return found

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Declare each parameter as an option of a command."""
        for each in fields(cls):
            about: dict[str, Any] = {"help": f"{each.metadata['help']} (default {each.default})"}
            if isinstance(each.default, bool):
                about["action"] = "store_true"
            else:
                about |= {"type": type(each.default), "default": each.default}
            parser.add_argument(_option(each.name), **about)

    @classmethod
    def of_arguments(cls, values: Mapping[str, Any]) -> Self:
        """The spec that parsed options give; raises ValueError where a value is out of its range."""
        return cls(**{each.name: values[each.name] for each in fields(cls)})

    def _check(self, name: str, least: int, most: int | None) -> None:
        value = getattr(self, name)
        if value < least or (most is not None and value > most):
            allowed = f"at least {least}" if most is None else f"from {least} to {most}"
            raise ValueError(f"{_option(name)} must be {allowed}, got {value}")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
