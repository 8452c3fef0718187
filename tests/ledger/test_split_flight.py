"""What a rank of a split backward holds, against every action of its whole list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from parlay.compiler.ledger.memory.flight import ORDERS, halves
from parlay.compiler.spec.schema import Setting
from parlay.runtime.timeline import Action


@given(st.data())
def test_the_fullest_moment_of_each_kind_is_found(data: st.DataObject) -> None:
    """Two microbatches a rank show all that a list of any length holds."""
    name = data.draw(st.sampled_from(sorted(set(ORDERS) - {"dualpipe"})))
    pp = data.draw(st.integers(2, 6))
    least = 2 * pp if name == "dualpipe_v" else 1
    microbatches = data.draw(st.integers(least, 7 * pp))
    stage = data.draw(st.integers(0, pp - 1))
    chunks = 1 if name == "zero_bubble" else 2
    bytes_ = st.lists(st.integers(0, 9), min_size=chunks, max_size=chunks)
    whole, late = data.draw(bytes_), data.draw(bytes_)
    found = halves(
        Setting(name), pp=pp, microbatches=microbatches, stage=stage, whole=whole, late=late
    )
    most = _played(ORDERS[name](pp, microbatches, stage).actions(), pp, whole, late)
    for chunk in range(chunks):
        kind = "I" if found.splits[chunk] else "B"
        told = (found.forward, found.before, found.after, found.weights)
        asked = (("F", chunk), (f"before {kind}", chunk), (f"after {kind}", chunk), ("W", chunk))
        for held, moment in zip(told, asked, strict=True):
            value = None
            if held[chunk] is not None:
                of_whole, of_late = held[chunk]
                value = sum(a * b for a, b in zip(of_whole + of_late, whole + late, strict=True))
            assert value == most.get(moment), moment


def _played(
    actions: list[Action], pp: int, whole: list[int], late: list[int]
) -> dict[tuple[str, int], int]:
    """The most bytes at every kind of moment, action by action."""
    held, most = 0, dict[tuple[str, int], int]()

    def seen(moment: str, chunk: int) -> None:
        most[moment, chunk] = max(most.get((moment, chunk), 0), held)

    for action in actions:
        chunk = action.stage // pp
        if action.kind == "F":
            held += whole[chunk]
            seen("F", chunk)
        elif action.kind == "W":
            seen("W", chunk)
            held -= late[chunk]
        else:
            seen(f"before {action.kind}", chunk)
            held -= whole[chunk] - (late[chunk] if action.kind == "I" else 0)
            seen(f"after {action.kind}", chunk)
    return most
