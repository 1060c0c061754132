"""The implementations of crawler.throttle.turns under one contract suite; tests move the clock of each."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from crawler.redisdb.scripts import Call, run_now
from crawler.throttle.limiter import ThrottleScripts
from crawler.throttle.memory import MemoryTurns
from crawler.throttle.redis import RedisTurns
from crawler.throttle.rules import RuleSet
from crawler.throttle.turns import Ages, Granted, Turns
from tests.support.frontier import FleetOnServer

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, Any]], Any]

WAITS = (1.0, 60.0, 86_400.0)


class Pace(Protocol):
    """One implementation, with rules and a clock that a test sets."""

    def begin(self, rules: RuleSet) -> None:
        """Sets the rules; no host was asked before."""

    def take(self, *hosts: str, missed: int = 0) -> list[Granted]:
        """Takes a turn of each host."""

    def hear(
        self, host: str, wait: float | None = None, age: float = 0.1, well: float | None = None
    ) -> tuple[float, bool]:
        """Blocks a host with WAITS."""

    def blocked(self, *hosts: str) -> list[float]:
        """Seconds until each host may be asked."""

    def advance(self, ms: int) -> None:
        """Lets time pass."""

    def now_us(self) -> int:
        """The time in microseconds."""


class _Asking:
    """What both have in common: questions to whatever gives turns."""

    turns: Turns

    def __init__(self, run: Run) -> None:
        self._run = run

    def take(self, *hosts: str, missed: int = 0) -> list[Granted]:
        return list(self._run(self.turns.take([(host, missed) for host in hosts])))

    def hear(
        self, host: str, wait: float | None = None, age: float = 0.1, well: float | None = None
    ) -> tuple[float, bool]:
        left, new = self._run(self.turns.hear(host, wait, Ages(age, well), WAITS))
        return left, new

    def blocked(self, *hosts: str) -> list[float]:
        return [standing.left_seconds for standing in self._run(self.turns.look(hosts))]


class PaceInRedis(_Asking):
    """The scripts on a server."""

    def __init__(self, run: Run, fleet: FleetOnServer) -> None:
        super().__init__(run)
        self._fleet = fleet

        async def ask(call: Call) -> Any:
            return run_now(fleet.redis, call)

        self.turns = RedisTurns(ThrottleScripts(fleet.partition.script_keys("throttle")), ask)
        # Ahead of the server's clock, it stands still between two advances.
        fleet.advance(3600)

    def take(self, *hosts: str, missed: int = 0) -> list[Granted]:
        turns = super().take(*hosts, missed=missed)
        # The server's clock, by which records expire, goes on while the test's stands still.
        for host in hosts:
            self._fleet.redis.persist(self._fleet.key(f"host:{host}"))
            self._fleet.redis.persist(self._fleet.key(f"turns:{host}"))
        return turns

    def begin(self, rules: RuleSet) -> None:
        for name in self._fleet.names() - {"state"}:
            self._fleet.redis.delete(self._fleet.key(name))
        self._fleet.set_rules(rules)

    def advance(self, ms: int) -> None:
        self._fleet.advance(ms / 1000)

    def now_us(self) -> int:
        return self._fleet.now_ms() * 1000


class PaceInMemory(_Asking):
    """The classes of crawler.throttle.memory."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._ms = 5_000_000
        self.begin(RuleSet())

    def begin(self, rules: RuleSet) -> None:
        self.turns = MemoryTurns(rules, clock=lambda: self._ms / 1000)

    def advance(self, ms: int) -> None:
        self._ms += ms

    def now_us(self) -> int:
        return self._ms * 1000
