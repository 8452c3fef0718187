"""Every message of one training step, priced later: groups, bytes, calls, wires."""

from parlay.compiler.ledger.comm.lines import comm_lines, relative_to_plain
from parlay.compiler.ledger.comm.record import CommLine, Raw
from parlay.compiler.ledger.comm.wire import Wire, speed, wire

__all__ = ["CommLine", "Raw", "Wire", "comm_lines", "relative_to_plain", "speed", "wire"]
