"""Puts a worker to sleep (SIGSTOP) at a moment when it keeps nobody from writing to the SQLite file they share."""

import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import psutil

from tests.support.waiting import wait_until

LIMIT_SECONDS = 30.0


def put_to_sleep(worker: "subprocess.Popen[bytes]", database: Path) -> None:
    """Stops a worker; one that is just writing wakes up again and is stopped later."""
    process = psutil.Process(worker.pid)

    def asleep() -> bool:
        worker.send_signal(signal.SIGSTOP)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, LIMIT_SECONDS, "the worker to stop")
        if _is_writable(database):
            return True
        worker.send_signal(signal.SIGCONT)
        return False

    wait_until(asleep, LIMIT_SECONDS, "a moment when the worker does not write")


def _is_writable(database: Path) -> bool:
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True
