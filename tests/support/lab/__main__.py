"""The lab as a command: python -m tests.support.lab, from the root of the repository."""

import asyncio
import sys
from argparse import ArgumentParser

from tests.support.lab.server import CannotListen, serve
from tests.support.lab.spec import LabSpec


def main() -> int:
    """Serve a lab; 1 where its addresses cannot be bound, 2 for wrong options."""
    parser = ArgumentParser(
        prog="python -m tests.support.lab",
        description="A synthetic web of many hosts. Once ready, it prints its start URL in a line of JSON.",
    )
    LabSpec.add_arguments(parser)
    parser.add_argument(
        "--until-stdin-closes", action="store_true", help="end with the process that holds the other end"
    )
    options = parser.parse_args()
    try:
        spec = LabSpec.of_arguments(vars(options))
    except ValueError as error:
        parser.error(str(error))
    try:
        asyncio.run(serve(spec, until_stdin_closes=options.until_stdin_closes))
    except CannotListen as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
