"""``python -m crawler.cli`` is ``trawlnet``."""

from crawler.cli import main

main()
