"""What this cluster was measured at, in place of what its parts are sold as."""

from __future__ import annotations

from dataclasses import dataclass

from parlay.compiler.spec.schema import block, compute, count, rate, text, time


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """The largest matrix product that was measured, all three sides alike."""

    rate_flops: float = compute("rate", "What it reached.")
    size: int = count("size", "Rows, columns and depth.", maximum=1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective: seconds of a call are steps times latency, and bytes sent over bandwidth."""

    bandwidth_bytes_per_s: float = rate(
        "bandwidth", "Of the slowest wire; between nodes, what one GPU has of it."
    )
    latency_s: float = time("latency", "Of one step of its ring or tree.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The collectives over one kind of wire."""

    ranks: int = count("ranks", "Ranks that took part.", minimum=2, maximum=1_000_000)
    all_reduce: Call | None = block("all_reduce", Call, "Sums for all.")
    all_gather: Call | None = block("all_gather", Call, "Parts put together for all.")
    reduce_scatter: Call | None = block("reduce_scatter", Call, "Sums, a part for each.")
    all_to_all: Call | None = block("all_to_all", Call, "A part from each for each.")
    send: Call | None = block("send", Call, "From one rank to another.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Measured figures of this cluster, as `parlay calibrate -o` writes them.

    They price the step in place of the accelerator's row of the table of efficiencies and of the
    wires' stated speeds; what is not measured is priced as without them.
    """

    source: str = text("source", "Where the figures come from.", "the file")
    device: str | None = text("device", "What was measured, as its driver calls it.", None)
    bf16: Product | None = block("bf16", Product, "A matrix product at bf16.")
    fp16: Product | None = block("fp16", Product, "A matrix product at fp16.")
    fp32: Product | None = block("fp32", Product, "A matrix product at fp32.")
    copy_bytes_per_s: float | None = rate(
        "copy", "Bytes that a large copy inside of GPU memory reads and writes.", None
    )
    host_bytes_per_s: float | None = rate(
        "host", "Between one GPU and host memory, one direction.", None
    )
    link: Calls | None = block("link", Calls, "Collectives inside of one node.")
    fabric: Calls | None = block("fabric", Calls, "Collectives between nodes.")
