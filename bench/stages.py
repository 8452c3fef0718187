"""How the layers of a row lie on its stages, where it says less than a layout needs."""

from __future__ import annotations

from stacks import Row, Usual


def chunks_of(row: Row, usual: Usual, layers: int, pp: int, dp: int) -> int:
    """The chunks of a rank: as stated, the most where the cell is a word (`max`), else what the
    stack's users set. A chunk of each layer needs microbatches in multiples of the stages."""
    vpp = row.get("vpp", "")
    if vpp.isdigit():
        return fullest(layers, pp, int(vpp))
    if vpp:
        return fullest(layers, pp, max(1, -(-(layers + 2) // pp)))
    batch, micro = float(row["global_batch_seqs"]), float(row["micro_batch"])
    rounds = batch / (micro * dp) % pp == 0
    return max(1, layers // pp) if usual.interleaved and rounds else 1


def fullest(layers: int, pp: int, chunks: int) -> int:
    """The chunks of a rank, fewer where a stage would have embedding or head alone.

    The language has no stage without a layer; `126 layers, pp 16, 8 chunks` --> 4 chunks.
    """
    if pp * chunks <= layers:
        return chunks
    fitting = range(1, layers // pp + 1)
    even = [c for c in fitting if c > 1 and (layers + 2) % (pp * c) == 0]
    return max(even or fitting, default=chunks)


def uneven(layers: int, steps: int, pp: int | None = None) -> tuple[int, ...] | None:
    """Layers of each stage where they do not divide: embedding and head count as a layer.

    `126, 16` --> `7, 8, …, 8, 7`
    """
    if layers % steps == 0:
        return None
    assert layers >= steps, "more stages than layers"
    if (layers + 2) % steps == 0 and (layers + 2) // steps > 1:
        each = (layers + 2) // steps
        return (each - 1, *([each] * (steps - 2)), each - 1)
    each, rest = divmod(layers, steps)
    ends = (0, (pp or steps) - 1)
    fuller = sorted(range(steps), key=lambda i: (i % (pp or steps) in ends, i))[:rest]
    return tuple(each + (i in fuller) for i in range(steps))
