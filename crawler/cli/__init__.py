"""The operator's command, ``trawlnet``. Exit codes: 0 done, 1 error, 2 usage, 3 Redis unreachable, 4 stopped by a
signal.
"""

import signal

from crawler.cli.crawl import app
from crawler.cli.host import host_app
from crawler.cli.parts import as_interrupt, main_errors

app.add_typer(host_app, name="host")


def main() -> None:
    """Runs the command."""
    signal.signal(signal.SIGTERM, as_interrupt)
    with main_errors():
        app(standalone_mode=True)
