"""One connection of a client: requests in the order they came, one at a time, pipelined or not."""

import asyncio
from collections.abc import Callable

from tests.support.lab.message import Answer, BadRequest, Request, answer_of, read_request

Respond = Callable[[Request], Answer]


class HttpConnection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive; the next request is read once the last one's answer is out."""

    def __init__(self, host: int, respond: Respond) -> None:
        self._host = host
        self._respond = respond
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unread = b""
        self._late: asyncio.TimerHandle | None = None
        self._full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop; an answer that waits is not sent, its hit stays logged."""
        self._transport = None
        if self._late is not None:
            self._late.cancel()

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._unread = self._unread + data if self._unread else data
        self._go_on()

    def pause_writing(self) -> None:
        """Called by the loop: the client reads slower than it asks."""
        self._full = True

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._full = False
        self._go_on()

    def _go_on(self) -> None:
        while self._unread and self._late is None and not self._full and self._transport is not None:
            try:
                found = read_request(self._unread, self._host)
            except BadRequest as error:
                refusal = answer_of(error.status, f"{error}\n".encode(), "text/plain")
                self._send(refusal, with_body=True, keep_alive=False)
                return
            if found is None:
                return
            request, size = found
            self._unread = self._unread[size:]
            answer = self._respond(request)
            if answer.delay_seconds:
                self._late = self._loop.call_later(answer.delay_seconds, self._send_late, request, answer)
            else:
                self._send(answer, with_body=request.method != "HEAD", keep_alive=request.keep_alive)

    def _send_late(self, request: Request, answer: Answer) -> None:
        self._late = None
        self._send(answer, with_body=request.method != "HEAD", keep_alive=request.keep_alive)
        self._go_on()

    def _send(self, answer: Answer, *, with_body: bool, keep_alive: bool) -> None:
        if self._transport is None:
            return
        self._transport.write(answer.encoded(with_body=with_body, keep_alive=keep_alive))
        if not keep_alive:
            self._transport.close()
            self._transport = None
