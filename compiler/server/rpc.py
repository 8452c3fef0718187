"""JSON-RPC over a byte stream, framed by `Content-Length` as the protocol has it."""

from __future__ import annotations

import json
from typing import Any, BinaryIO, Final

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NOT_INITIALIZED: Final = -32002

LONGEST_HEADER: Final = 4096
LONGEST: Final = 64 << 20
"""A message of more bytes is no text of an editor."""

Message = dict[str, Any]


class Malformed(Exception):
    """A message that is none; the stream goes on behind it."""


class Lost(Exception):
    """A header that is none: where the next message starts, nobody knows."""


class Refusal(Exception):
    """A request that is answered by an error."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


def read(stream: BinaryIO) -> Message | None:
    """The next message; None at the end of the stream.

    Raises `Malformed` for a body that is no JSON object, `Lost` for a broken header.
    """
    length = None
    first = True
    while True:
        line = stream.readline(LONGEST_HEADER)
        if not line or not line.endswith(b"\n"):
            if first and not line:
                return None
            raise Lost("the stream ends within a header")
        first = False
        line = line.strip()
        if not line:
            break
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            digits = value.strip()
            if not digits.isdigit() or len(digits) > 12 or int(digits) > LONGEST:
                raise Lost("the length of a message is no length")
            length = int(digits)
    if length is None:
        raise Lost("a message has no length")
    body = stream.read(length)
    if len(body) < length:
        raise Lost("the stream ends within a message")
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as wrong:
        raise Malformed(str(wrong)) from None
    if not isinstance(message, dict):
        raise Malformed("a message is an object")
    return message


def write(stream: BinaryIO, message: Message) -> None:
    """Sends one message."""
    # Halves of surrogate pairs in a text that an editor sent would be no UTF-8: they stay escaped.
    body = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=True).encode()
    stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    stream.flush()
