"""Who of those that wait for one download slot may take a turn of its host."""

import asyncio
from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Door:
    """Requests of one download slot: in the downloader, waiting here, and those of them that may not take a turn yet.

    Who may has its slot free when the turn comes, so that what is sent is sent in its turn. ``slow``: those that wait
    wait for their host, and hold no capacity.
    """

    places: int = 1
    ahead: int = 1
    slow: bool = False
    sent: int = 0
    waiting: int = 0
    queue: deque["asyncio.Future[None]"] = field(default_factory=deque)

    @property
    def _free(self) -> int:
        taking = self.waiting - len(self.queue)
        return min(self.places - self.sent, self.ahead) - taking

    def enter(self) -> "asyncio.Future[None]":
        """A future that is done when a turn may be taken."""
        may = asyncio.get_running_loop().create_future()
        self.waiting += 1
        self.queue.append(may)
        self.admit()
        return may

    def leave(self, may: "asyncio.Future[None]") -> None:
        """Gives up waiting, or goes on to the downloader."""
        self.waiting -= 1
        if may in self.queue:
            self.queue.remove(may)

    def admit(self) -> None:
        """Lets those take turns who may."""
        while self.queue and self._free > 0:
            may = self.queue.popleft()
            if not may.cancelled():  # its waiter was, and leaves in the next turn of the loop
                may.set_result(None)
