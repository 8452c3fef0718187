"""The language server: the editor's side of the diagnostics, the schema and the origins."""

from __future__ import annotations


def serve() -> int:
    """Serves one editor over stdin and stdout; the status is what the protocol wants at its end."""
    from parlay.compiler.server.loop import serve

    return serve()
