"""Arguments of Megatron-LM to the `model` block."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from parlay.compiler.importers.arguments import Arguments
from parlay.compiler.importers.hf import Unreadable
from parlay.compiler.importers.written import Draft, in_range, number, switch, value, variant

VOCABULARIES: Final = (
    (r"gpt2|GPT2BPETokenizer", 50257),
    (r"llama-?3|Meta-Llama-3", 128256),
    (r"llama-?2|Llama2Tokenizer|mi[sx]tral", 32000),
    (r"qwen3", 151936),
    (r"deepseek-?v3", 129280),
    (r"deepseek-?v2", 102400),
)
"""What names of tokenizers say of their vocabulary."""
BETAS: Final = {"beta_fast": 32.0, "beta_slow": 1.0}


def model(given: Arguments, draft: Draft, *, seq: int) -> None:
    """Writes the model, with the framework's defaults where an option is absent."""
    layers, hidden = _needed(given, "--num-layers"), _needed(given, "--hidden-size")
    heads = _needed(given, "--num-attention-heads")
    swiglu = given.has("--swiglu")
    usual = int(8 * hidden / 3 / 64) * 64 if swiglu else 4 * hidden
    ffn = given.whole("--ffn-hidden-size") or usual
    fields = {"layers": layers, "hidden": hidden, "heads": heads}
    for name, size in fields.items():
        draft.set(f"model.{name}", str(size))
    _attention(given, draft, hidden=hidden, heads=heads)
    draft.set("model.ffn", str(ffn))
    draft.set("model.vocab", str(_vocabulary(given, draft)))
    draft.set("model.context", str(given.whole("--max-position-embeddings") or seq))
    _shape(given, draft, swiglu=swiglu)
    _positions(given, draft)
    untied = given.has("--untie-embeddings-and-output-weights")
    draft.set("model.tied_embeddings", switch(not untied))
    dropout, other = (given.real(f"--{kind}-dropout", 0.1) for kind in ("attention", "hidden"))
    draft.set("model.dropout", number(other))
    if dropout != other:
        draft.lost.append(f"--attention-dropout {dropout}: the file has one rate, {other}")
    draft.set("model.init_std", number(given.real("--init-method-std", 0.02)))
    mtp = given.whole("--mtp-num-layers")
    if mtp:
        draft.set("model.mtp_layers", str(mtp))
    if given.has("--num-experts"):
        _experts(given, draft, layers=layers, ffn=ffn)


def _needed(given: Arguments, name: str) -> int:
    value = given.whole(name)
    if value is None:
        said = "; ".join(line for line in given.lost if line.startswith((name, "$")))
        raise Unreadable(f"{name} is not given as a number" + (f" ({said})" if said else ""))
    return value


def _attention(given: Arguments, draft: Draft, *, hidden: int, heads: int) -> None:
    grouped = given.has("--group-query-attention")
    groups = given.whole("--num-query-groups")
    width = given.whole("--kv-channels") or hidden // heads
    norms = given.has("--qk-layernorm")
    if given.has("--multi-latent-attention"):
        names = {"q_rank": "q-lora-rank", "kv_rank": "kv-lora-rank", "nope_dim": "qk-head-dim"}
        names |= {"rope_dim": "qk-pos-emb-head-dim", "v_dim": "v-head-dim"}
        usual = {"kv_rank": 32, "nope_dim": 128, "rope_dim": 64, "v_dim": 128}
        mla = {name: given.whole(f"--{option}", usual.get(name)) for name, option in names.items()}
        for name, size in mla.items():
            if size is not None:
                draft.set(f"model.mla.{name}", str(size))
        draft.set("model.head_dim", str((mla["nope_dim"] or 0) + (mla["rope_dim"] or 0)))
        if not norms:
            draft.assumed.append("latent attention with the norms of its latents")
    else:
        if grouped and groups is not None:
            draft.set("model.kv_heads", str(groups))
        elif groups is not None and groups != 1:
            draft.lost.append(f"--num-query-groups {groups}: without --group-query-attention")
        draft.set("model.head_dim", str(width))
        if norms:
            draft.set("model.qk_norm", "per_head")
    kind = given.text("--softmax-type")
    if kind == "learnable":
        draft.set("model.sinks", "on")
    elif kind not in (None, "vanilla"):
        draft.lost.append(f"--softmax-type {kind}")
    window = given.text("--window-size")
    every = given.text("--window-attn-skip-freq")
    if window is not None:
        sizes = [int(part) for part in re.findall(r"-?\d+", window)]
        whole = every is None or every.isdecimal()
        if len(sizes) == 2 and sizes[0] >= 0 and sizes[1] == 0 and whole:
            options = {"size": str(sizes[0] + 1)} | ({"every": every} if every else {})
            draft.set("model.@window", variant("window", **options))
        else:
            draft.lost.append(f"--window-size {window} with --window-attn-skip-freq {every}")


def _vocabulary(given: Arguments, draft: Draft) -> int:
    said = given.whole("--vocab-size") or given.whole("--padded-vocab-size")
    if said is not None:
        return said
    names = ("--tokenizer-type", "--tokenizer-model", "--vocab-file")
    words = " ".join(word for name in names for word in given.values.get(name, ()))
    for pattern, size in VOCABULARIES:
        if re.search(pattern, words, re.IGNORECASE):
            draft.assumed.append(f"vocab = {size}, from the name of the tokenizer")
            return size
    draft.assumed.append("vocab = 32000: it follows from the tokenizer's file")
    return 32000


def _shape(given: Arguments, draft: Draft, *, swiglu: bool) -> None:
    squared = given.has("--squared-relu")
    # Fused with the bias, gelu is its tanh form.
    fused = not given.has("--disable-bias-linear") and not given.has("--no-bias-gelu-fusion")
    gelu = "gelu_tanh" if fused else "gelu"
    quick = given.has("--quick-geglu")
    plain = "swiglu" if swiglu else "relu2" if squared else gelu
    draft.set("model.activation", "quick_geglu" if quick else plain)
    clamp = given.text("--activation-func-clamp-value")
    offset = given.real("--glu-linear-offset", 0.0)
    if quick and clamp is not None:
        draft.set("model.glu_clamp", number(given.real("--activation-func-clamp-value", 0.0)))
    elif clamp is not None:
        draft.lost.append(f"--activation-func-clamp-value {clamp}: quick_geglu alone is clamped")
    if quick and offset:
        draft.set("model.glu_offset", number(offset))
    elif offset:
        draft.lost.append(f"--glu-linear-offset {offset}: quick_geglu alone is moved")
    if given.has("--openai-gelu"):
        draft.lost.append(f"--openai-gelu: {gelu} is written")
    norm = given.text("--normalization", "LayerNorm")
    draft.set("model.norm", "rmsnorm" if norm == "RMSNorm" else "layernorm")
    draft.set("model.norm_eps", number(given.real("--norm-epsilon", 1e-5)))
    if given.has("--disable-bias-linear"):
        draft.set("model.bias", "qkv" if given.has("--add-qkv-bias") else "none")
    else:
        given.has("--add-qkv-bias")
        # Where a model has biases, its router has one too.
        mixture = "--num-experts" in given.values
        draft.set("model.bias", "[qkv, out, mlp, router]" if mixture else "all")


def _positions(given: Arguments, draft: Draft) -> None:
    kind = given.text("--position-embedding-type", "learned_absolute")
    if given.has("--use-rotary-position-embeddings"):
        kind = "rope"
    given.has("--no-position-embedding")
    names = {"rope": "rope", "yarn": "rope", "learned_absolute": "learned", "none": "none"}
    if kind not in names:
        draft.lost.append(f"--position-embedding-type {kind}: rope is written")
    position = names.get(kind or "", "rope")
    theta, partial = given.whole("--rotary-base", 10000), given.real("--rotary-percent", 1.0)
    scaling = given.whole("--rotary-seq-len-interpolation-factor")
    if position != "rope":
        draft.set("model.position", position)
        return
    options = {"theta": str(theta)}
    if partial != 1:
        options["partial"] = number(partial)
    if scaling:
        options["scaling"] = str(scaling)
    draft.set("model.@rope", variant("rope", **options))
    _stretched(given, draft, yarn=kind == "yarn")


def _stretched(given: Arguments, draft: Draft, *, yarn: bool) -> None:
    """Features that are stretched apart; under latent attention by yarn where nothing is said."""
    latent = "--multi-latent-attention" in given.values
    named = given.text("--rope-type", "yarn" if latent else "rope")
    yarn = named == "yarn" if latent else yarn
    factor = given.real("--rotary-scaling-factor", 1.0)
    widths = {"mscale": given.real("--mscale", 1.0)}
    widths["mscale_all_dim"] = given.real("--mscale-all-dim", 0.0)
    original = given.whole("--yarn-original-max-position-embeddings", 4096)
    betas = {name: given.real(f"--yarn-{name.replace('_', '-')}", v) for name, v in BETAS.items()}
    whole = given.has("--yarn-correction-range-round-to-int") or not given.has(
        "--no-yarn-correction-range-round-to-int"
    )
    banded = given.real("--rope-scaling-factor", 8.0)
    if yarn and factor != 1:
        options = {"factor": number(factor), "original": str(original)}
        options |= {name: number(beta) for name, beta in betas.items() if beta != BETAS[name]}
        options |= {} if whole else {"truncate": "off"}
        options |= {name: number(width) for name, width in widths.items()}
        draft.set("model.rope_scaling", variant("yarn", **options))
    elif given.has("--use-rope-scaling"):
        draft.set("model.rope_scaling", variant("llama3", factor=number(banded)))


# ── Experts ───────────────────────────────────────────────────────────────────


def _experts(given: Arguments, draft: Draft, *, layers: int, ffn: int) -> None:
    def put(name: str, text: str) -> None:
        draft.set(f"model.experts.{name}", text)

    put("count", str(_needed(given, "--num-experts")))
    put("top_k", str(given.whole("--moe-router-topk", 2)))
    put("ffn", str(given.whole("--moe-ffn-hidden-size", ffn)))
    shared = given.whole("--moe-shared-expert-intermediate-size")
    if shared:
        put("shared", "1")
        put("shared_ffn", str(shared))
        if given.has("--moe-shared-expert-gate"):
            put("shared_gate", "on")
    _frequency(given, draft, layers)
    router = given.text("--moe-router-score-function", "softmax")
    if router not in ("softmax", "sigmoid"):
        draft.lost.append(f"--moe-router-score-function {router}: sigmoid is written")
        router = "sigmoid"
    put("router", router)
    if "--moe-router-pre-softmax" in given.values and given.text("--moe-router-topk", "2") != "1":
        given.has("--moe-router-pre-softmax")
        if router == "softmax":
            put("normalize", "off")
    if (scale := given.real("--moe-router-topk-scaling-factor", 1.0)) != 1:
        put("scale", number(scale))
    if (loss := given.real("--moe-z-loss-coeff", 0.0)) > 0:
        put("z_loss", number(loss))
    if given.has("--moe-router-enable-expert-bias"):
        put("router_bias", "on")
    if (groups := given.whole("--moe-router-num-groups")) is not None:
        put("groups", str(groups))
        put("top_groups", str(given.whole("--moe-router-group-topk", groups)))
    kinds, coefficients = given.list("--moe-router-load-balancing-type"), _coefficients(given)
    if len(coefficients) > 1 or len(kinds) > 1:
        draft.lost.append(f"losses {' '.join(kinds)} weighing {coefficients}: one is written")
    loss = coefficients[0] if coefficients else 0.0
    put("aux_loss", number(loss))
    kind = kinds[0] if kinds else "aux_loss"
    if kind != ("aux_loss" if loss else "none"):
        draft.set("target megatron.options.moe_router_load_balancing_type", value(kind))
    if (capacity := given.real("--moe-expert-capacity-factor", 0.0)) > 0:
        put("capacity", number(capacity))


def _coefficients(given: Arguments) -> list[float]:
    out: list[float] = []
    for written in given.list("--moe-aux-loss-coeff"):
        try:
            found = float(written)
            if found < 0 or not in_range(found):
                raise ValueError
            out.append(found)
        except ValueError:
            given.lost.append(f"--moe-aux-loss-coeff {written}: no number")
    return out


def _frequency(given: Arguments, draft: Draft, layers: int) -> None:
    written = given.text("--moe-layer-freq", "1") or "1"
    flags = pattern(written, layers)
    if flags is None:
        draft.lost.append(f"--moe-layer-freq {written}: experts in every layer are written")
        return
    for first in range(layers + 1):
        for every in (1, 2, 3, 4, 6, 8):
            made = [i >= first and (i - first) % every == every - 1 for i in range(layers)]
            if made == flags:
                if first:
                    draft.set("model.experts.dense_layers", str(first))
                if every > 1:
                    draft.set("model.experts.every", str(every))
                return
    draft.lost.append(f"--moe-layer-freq {written}: experts in every layer are written")


def pattern(written: str, layers: int) -> list[bool] | None:
    """Which layers have experts: a number, or sums and multiples of lists of 0 and 1.

    `([0]*1+[1]*3)` --> `[no, yes, yes, yes]`
    """
    if written.isdecimal():
        every = int(written)
        return [i % every == 0 for i in range(layers)] if every else None
    tokens = re.findall(r"\[[01, ]*\]|\d+|[()*+]", written)
    if "".join(tokens) != written.replace(" ", "") and "".join(tokens) != written:
        return None
    try:
        flags, rest = _sum(tokens)
    except (IndexError, ValueError):
        return None
    return [bool(flag) for flag in flags] if not rest and len(flags) == layers else None


def _sum(tokens: Sequence[str]) -> tuple[list[int], Sequence[str]]:
    flags, rest = _product(tokens)
    while rest and rest[0] == "+":
        more, rest = _product(rest[1:])
        flags = flags + more
    return flags, rest


def _product(tokens: Sequence[str]) -> tuple[list[int], Sequence[str]]:
    if tokens[0] == "(":
        flags, rest = _sum(tokens[1:])
        if not rest or rest[0] != ")":
            raise ValueError
        rest = rest[1:]
    elif tokens[0].startswith("["):
        flags, rest = [int(flag) for flag in re.findall(r"[01]", tokens[0])], tokens[1:]
    else:
        raise ValueError
    while len(rest) > 1 and rest[0] == "*":
        times = int(rest[1])
        if len(flags) * times > 100_000:
            raise ValueError
        flags, rest = flags * times, rest[2:]
    return flags, rest
