"""Background tasks and threads whose failure is seen."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

CANCEL_SECONDS = 0.1


def guarded(name: str, work: Callable[[], None], failed: Callable[[BaseException], None]) -> Callable[[], None]:
    """The body of a thread: a failure is logged with its traceback and told to ``failed``."""

    def run() -> None:
        try:
            work()
        except Exception as error:
            log.exception("%s failed", name)
            failed(error)

    return run


class BackgroundTask:
    """One coroutine that runs beside the rest. A failure is logged with its traceback and told to ``failed``."""

    def __init__(self, name: str, work: Callable[[], Awaitable[None]], failed: Callable[[BaseException], None]) -> None:
        self._name = name
        self._work = work
        self._failed = failed
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._guarded(), name=self._name)

    async def _guarded(self) -> None:
        try:
            await self._work()
        except Exception as error:
            log.exception("%s failed", self._name)
            self._failed(error)

    async def stop(self) -> None:
        """Cancels the task and waits until it is gone."""
        if self._task is None:
            return
        while not self._task.done():
            # Again, until it is heard: in Python 3.11 asyncio.wait_for, with which redis-py sends, may swallow one.
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CANCEL_SECONDS)
        self._task = None
