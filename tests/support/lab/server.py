"""The lab's process: a socket for each host, all on one port, until a signal or the end of standard input."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from functools import partial

from tests.support.lab.connection import HttpConnection
from tests.support.lab.hits import HitLog
from tests.support.lab.respond import Responder
from tests.support.lab.site import Site
from tests.support.lab.spec import LabSpec

BACKLOG = 1024
TRIES_OF_FREE_PORTS = 20
"""The port that is free on the first host may be taken on another."""


class CannotListen(Exception):
    """An address of the lab cannot be bound."""


def listen(spec: LabSpec) -> tuple[LabSpec, list[socket.socket]]:
    """The sockets of all hosts in order, and the spec with their port; raises CannotListen."""
    for _ in range(1 if spec.port else TRIES_OF_FREE_PORTS):
        try:
            return _listen_on(spec)
        except OSError as error:
            problem = error
    raise CannotListen(
        f"cannot listen on {spec.address(0)} to {spec.address(spec.hosts - 1)}, port {spec.port}: {problem}; take "
        "another --port, raise `ulimit -n`, or, where 127.0.0.1 is the only loopback address, use --hosts 1"
    )


async def serve(spec: LabSpec, *, until_stdin_closes: bool) -> None:
    """Serve until SIGTERM, SIGINT or, where asked, the end of standard input; a line of JSON says when ready."""
    spec, sockets = listen(spec)
    site = Site(spec)
    responder = Responder(site, HitLog(time.time))
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if until_stdin_closes:
        loop.add_reader(sys.stdin.fileno(), _drain_stdin, stop)
    async with AsyncExitStack() as stack:
        for host, each in enumerate(sockets):
            factory = partial(HttpConnection, host, responder.answer)
            server = await loop.create_server(factory, sock=each, backlog=BACKLOG)
            stack.enter_context(closing(server))
        print(json.dumps({"url": site.start_url, "port": spec.port, "hosts": spec.hosts}), flush=True)
        await stop.wait()


def _listen_on(spec: LabSpec) -> tuple[LabSpec, list[socket.socket]]:
    sockets: list[socket.socket] = []
    try:
        for host in range(spec.hosts):
            sockets.append(socket.create_server((spec.address(host), spec.port), backlog=BACKLOG))
            spec = replace(spec, port=sockets[0].getsockname()[1])
    except OSError:
        for each in sockets:
            each.close()
        raise
    return spec, sockets


def _drain_stdin(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()
