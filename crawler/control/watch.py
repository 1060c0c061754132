"""Shows a local fleet's progress until it has ended."""

import time

from rich.console import Console
from rich.live import Live

from crawler.control.crawls import Crawls
from crawler.control.local import LocalFleet
from crawler.control.screen import Rates, progress_line, progress_panel

LINE_SECONDS = 5.0


def watch_fleet(fleet: LocalFleet, crawls: Crawls, console: Console) -> None:
    """Shows progress until all workers have ended: one line that is drawn anew, or where that cannot be, one every
    5 s.
    """
    started, rates, said = time.monotonic(), Rates(), -LINE_SECONDS

    with Live(console=console, auto_refresh=False, transient=True) as live:

        def look() -> None:
            nonlocal said
            found, seconds = crawls.status(), time.monotonic() - started
            rates.look(seconds, found.done, sum(worker.items for worker in found.workers))
            if found.state != "open":
                # The run before this one, or none yet.
                return
            if console.is_terminal:
                live.update(progress_panel(found, rates, seconds), refresh=True)
            elif seconds - said >= LINE_SECONDS:
                said = seconds
                console.print(progress_line(found, rates, seconds), highlight=False, soft_wrap=True)

        fleet.wait(look)
