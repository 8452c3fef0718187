"""What a layer of experts keeps of one microbatch."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from parlay.compiler.ledger.memory.record import Saved
from parlay.compiler.ledger.memory.sizes import Sizes
from parlay.compiler.spec.blocks import GATED

SOURCE = "arXiv:2006.16668; Megatron-Core MoE"


def routed(sizes: Sizes) -> int:
    """Token visits that one rank's experts compute: its own tokens · top_k · etp · imbalance.

    Each of the etp·ep ranks brings tokens/(residual cut) tokens, which land evenly on ep groups of
    experts up to the imbalance; a capacity factor pads or drops to just so many.
    """
    experts = sizes.model.experts
    assert experts is not None
    own = sizes.tokens / sizes.residual * experts.top_k * sizes.parallel.etp
    return ceil(own * (experts.imbalance if experts.capacity is None else experts.capacity))


def own_visits(sizes: Sizes) -> int:
    """Visits of a rank's own tokens."""
    experts = sizes.model.experts
    assert experts is not None
    return sizes.tokens // sizes.residual * experts.top_k


def mixture(sizes: Sizes) -> Iterator[Saved]:
    """Router, dispatched tokens, inner tensors of the experts, shared experts.

    Router: fp32 scores and probabilities of all experts. Dispatch: the experts' input, 2·k·h bytes
    a token. Experts: as the MLP over k·f. For the gradient of the router, what its probabilities
    multiply: the experts' output, 2·k·h, or a plain activation's product, 2·k·f, by stack.
    """
    model, stack = sizes.model, sizes.stack
    experts = model.experts
    assert experts is not None
    own = sizes.tokens // sizes.residual
    scores, formula = 8 * own * experts.count, f"8 x {own} x {experts.count}"
    if stack.traced:
        scores, formula = _routing(sizes, own)
    # Our own code computes the whole mixture again, router and shared experts too.
    again = " experts" if stack.traced else ""
    yield Saved(
        "router scores and probabilities",
        f"router{again}",
        scores,
        formula,
        SOURCE,
    )
    if stack.wide_router:
        value, formula = sizes.stream(4)
        yield Saved("router input in fp32", "router", value, formula, stack.source)
    visits = routed(sizes)
    visit = f"{visits} visits"
    yield Saved(
        "tokens dispatched to experts",
        again.strip() or None,
        int(sizes.kept * visits * model.hidden),
        f"{sizes.kept:g} x {visit} x {model.hidden}",
        SOURCE,
    )
    features = -(-experts.ffn // sizes.parallel.etp)
    whole, inputs = sizes.tensors(keep=True), sizes.tensors(keep=False)
    yield Saved(
        "expert activation input",
        "experts",
        int(inputs * visits * features),
        f"{inputs:g} x {visit} x {features}",
        stack.source,
    )
    yield Saved(
        "expert activation",
        "experts activation",
        int((whole - inputs) * visits * features),
        f"{whole - inputs:g} x {visit} x {features}",
        stack.source,
    )
    if stack.weighed_product and model.activation not in GATED:
        yield Saved(
            "expert activation, weighed",
            "experts activation",
            int(sizes.width * visits * features),
            f"{sizes.width} x {visit} x {features}",
            stack.source,
        )
    if stack.expert_output:
        # What came back to the tokens' own rank, and over etp is summed.
        came = own_visits(sizes) if stack.traced else visits
        yield Saved(
            "expert output",
            "experts",
            sizes.width * came * model.hidden,
            f"{sizes.width} x {came} visits x {model.hidden}",
            stack.source,
        )
    if experts.shared:
        width = -(-experts.shared * experts.shared_ffn // sizes.tp)
        value, formula = sizes.inner(width, whole)
        yield Saved("shared experts", f"mlp{again}", value, formula, stack.source)


def _routing(sizes: Sizes, own: int) -> tuple[int, str]:
    """What routing keeps in the emitted code: a score of each expert, for each visit its expert
    (int64), its weight in fp32 and as wide as the rows, the order of the rows and the way back
    (int64), and both of what the rank's experts get, where rows are exchanged."""
    experts, parallel = sizes.model.experts, sizes.parallel
    assert experts is not None
    wide = max(4, sizes.width)
    visits = own * experts.top_k
    rows = routed(sizes) if parallel.ep > 1 or parallel.etp > 1 else 0
    each = 8 + wide + sizes.width + 16
    # Their sum, too, where weights are divided by it, and scores before their softmax.
    logits = 2 if experts.z_loss else 1
    summed = int(experts.normalize and experts.top_k > 1)
    value = wide * own * (logits * experts.count + summed) + each * visits + 16 * rows
    formula = f"{wide} x {own} x {logits * experts.count + summed} + {each} x {visits}"
    return value, formula + (f" + 16 x {rows}" if rows else "")
