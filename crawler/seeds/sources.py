"""Streams seeds out of files and standard input, one a line, with the number of its line."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, cast

from crawler.errors import BadSeed
from crawler.seeds.parse import MAX_SEED_BYTES

_GZIP_MAGIC: Final = b"\x1f\x8b"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def seeds_in_file(path: Path) -> Iterator[tuple[int, bytes]]:
    """Line number and raw seed of each line of a text file, which may be compressed with gzip."""
    with path.open("rb") as stream:
        yield from seeds_in_stream(stream, str(path))


def seeds_in_stream(stream: IO[bytes], name: str = "standard input") -> Iterator[tuple[int, bytes]]:
    """Line number and raw seed of each line as it comes, but for empty ones and those that begin with `#`.

    Of a line above MAX_SEED_BYTES as much is given as makes `parse_seed` refuse it. Raises BadSeed if a
    compressed stream is cut or damaged; what was before that has been given.
    """
    lines = uncompressed(stream)
    number = 0
    try:
        while line := lines.readline(MAX_SEED_BYTES + 1):
            number += 1
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = lines.readline(MAX_SEED_BYTES + 1)
            seed = (line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line).strip(b" \t\r\n")
            if seed and not seed.startswith(b"#"):
                yield number, seed
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadSeed(f"{name} is damaged after line {number} ({error}); fetch or compress it again") from error


def uncompressed(stream: IO[bytes]) -> IO[bytes]:
    """The stream's content, through gzip if it begins like that; reads no further than it must to know."""
    buffered = stream if hasattr(stream, "peek") else io.BufferedReader(cast("io.RawIOBase", stream))
    start = cast("Any", buffered).peek(len(_GZIP_MAGIC))
    if start.startswith(_GZIP_MAGIC):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=cast("Any", buffered)))
    return buffered
