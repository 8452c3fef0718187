"""Stdin to stdout: messages are read beside the work, so that a change overtakes a check."""

from __future__ import annotations

import os
import sys
import threading
from queue import Empty, SimpleQueue
from typing import BinaryIO

from parlay.compiler.server import rpc
from parlay.compiler.server.session import Session

_Arrived = rpc.Message | rpc.Malformed | None


def serve() -> int:
    """Serves stdin and stdout until `exit` or the end of the stream."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever prints would break the framing: stdout is the protocol's alone.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # A stream of its own: Python waits at its end for `sys.stdin`, which a thread still reads.
    inward = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    try:
        return run(inward, out)
    except (BrokenPipeError, KeyboardInterrupt):
        return 1


def run(inward: BinaryIO, outward: BinaryIO) -> int:
    """One session; 0 where it was shut down before its `exit`."""
    session = Session(lambda message: rpc.write(outward, message))
    arrived: SimpleQueue[_Arrived] = SimpleQueue()
    threading.Thread(target=_read, args=(inward, arrived), daemon=True).start()
    while session.status is None:
        try:
            message = arrived.get_nowait()
        except Empty:
            session.settle()
            message = arrived.get()
        if message is None:
            return 1
        if isinstance(message, rpc.Malformed):
            session.malformed(str(message))
        else:
            session.handle(message)
    return session.status


def _read(inward: BinaryIO, arrived: SimpleQueue[_Arrived]) -> None:
    while True:
        try:
            message = rpc.read(inward)
        except rpc.Malformed as wrong:
            arrived.put(wrong)
            continue
        except (rpc.Lost, OSError, ValueError):
            message = None
        arrived.put(message)
        if message is None:
            return
