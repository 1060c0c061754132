"""A Redis that is far away: a proxy on loopback that delays every byte both ways."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

READ_BYTES = 65536


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await reader.read(READ_BYTES):
            loop.call_later(delay_seconds, writer.write, data)
    finally:
        loop.call_later(delay_seconds, writer.close)


@contextmanager
def far_redis(port: int, delay_seconds: float) -> Iterator[str]:
    """Address of a proxy to the server on a port; each direction takes the delay longer."""
    ready: list[int] = []
    started, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(
                _pump(reader, far_writer, delay_seconds),
                _pump(far_reader, writer, delay_seconds),
                return_exceptions=True,
            )

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        ready.append(server.sockets[0].getsockname()[1])
        started.set()
        await asyncio.to_thread(stop.wait)
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    started.wait(10)
    try:
        yield f"redis://127.0.0.1:{ready[0]}/0"
    finally:
        stop.set()
        thread.join(10)
