"""Predicted beside measured peak memory: `python bench/memory.py RUNS.csv [--worst N] [--json]`.

Each row becomes a `.par` of its columns alone; rows that lack a column are skipped, and counted.
Errors are |predicted / measured - 1| of the last pipeline stage's rank, in percent. Rows that do
not state their attention kernel are priced with the stack's usual one and reported apart.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from parlay.compiler.layout import lay_out
from parlay.compiler.ledger.memory import account
from parlay.compiler.spec.resolve import resolve
from parlay.dsl.parse import parse
from parlay.dsl.source import Source

Row = Mapping[str, str]

NEEDED = ("layers", "hidden", "heads", "seq", "tp", "pp", "micro_batch", "peak_mem_gib", "gpu")
GPUS = {"GB200-NVL72": "gb200-nvl72", "RTX4090": "rtx-4090"}
DEFAULT_VOCAB = 50257  # GPT-2's, where a row leaves it out
RECOMPUTED = {
    "layernorm": "norm",
    "mlp": "mlp",
    "moe_act": "activation",
    "core_attn": "core_attention",
}


@dataclass(frozen=True)
class Result:
    """One row: its class, predicted and measured bytes."""

    row: Row
    kind: str
    predicted: int
    measured: int

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("path", type=Path)
    parser.add_argument("--worst", type=int, default=10, help="how many of the worst rows to list")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with arguments.path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    results: list[Result] = []
    skipped: Counter[str] = Counter()
    for row in rows:
        made = predict(row)
        if isinstance(made, str):
            skipped[made] += 1
        else:
            results.append(made)
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[result.kind].append(result)
    summary = {kind: summarise(group) for kind, group in sorted(groups.items())}
    if arguments.json:
        print(json.dumps({"version": 1, "memory": summary, "skipped": skipped}, indent=2))
        return
    print(f"{'class':34} {'rows':>5} {'median':>8} {'p90':>8} {'worst':>8}")
    for kind, figures in summary.items():
        shares = "".join(f" {100 * figures[name]:7.2f}%" for name in ("median", "p90", "worst"))
        print(f"{kind:34} {figures['count']:5}{shares}")
    for reason, number in skipped.items():
        print(f"skipped {number}: {reason}")
    for result in sorted(results, key=lambda each: -abs(each.error))[: arguments.worst]:
        print(f"{100 * result.error:+7.2f}%  {result.row['id']}  {result.row['model']}")


def summarise(results: list[Result]) -> dict[str, float]:
    """Count, median, 90th percentile and worst of the absolute errors, as shares."""
    errors = sorted(abs(result.error) for result in results)
    high = quantiles(errors, n=10)[-1] if len(errors) > 1 else errors[0]
    return {
        "count": len(errors),
        "median": median(errors),
        "p90": min(high, errors[-1]),
        "worst": errors[-1],
    }


def predict(row: Row) -> Result | str:
    """The row's prediction, or why there is none."""
    missing = [name for name in NEEDED if not row[name]]
    if missing:
        return f"{missing[0]} is not stated"
    if not row["dp"] and not row["gpus"] and zero_of(row["zero_stage_or_sharding"]):
        return "state is sharded over a dp that is not stated"
    try:
        text = par_of(row)
    except KeyError as lacking:
        return f"{lacking.args[0]!r} has no word in the language"
    file, told = parse(Source("row.par", text))
    phases, more = resolve(file, lambda _: (None, ()))
    if told or more:
        return f"{(*told, *more)[0].message}"
    spec = phases[0].spec
    try:
        last = account(spec, lay_out(spec)).classes[-1]
    except AssertionError as refusal:
        return f"no such layout: {refusal}"
    exact = re.search(r"exact bytes (\d+)", row["notes"])
    measured = int(exact[1]) if exact else round(float(row["peak_mem_gib"]) * 2**30)
    return Result(row, kind_of(row), last.peak_bytes, measured)


def kind_of(row: Row) -> str:
    """The class that a row is reported in."""
    family = "experts" if row["experts"] else "cp" if row["cp"] not in ("", "1") else "dense"
    low = f", {row['precision']}" if row["precision"].startswith("fp8") else ""
    stated = "" if row["attention"] else ", kernel not stated"
    return f"{family}{low}{stated}"


def par_of(row: Row) -> str:
    """The `.par` of a row."""

    def number(name: str, default: int) -> int:
        return int(row[name] or default)

    layers, hidden, heads = (int(row[name]) for name in ("layers", "hidden", "heads"))
    tp, pp, cp, chunks = (number(name, 1) for name in ("tp", "pp", "cp", "vpp"))
    ep = number("ep", 1)
    dp = number("dp", 0) or max(1, number("gpus", 8) // (tp * pp * cp))
    world = tp * pp * cp * dp
    micro = int(row["micro_batch"])
    batch = number("global_batch_seqs", micro * dp * pp * 8)
    ffn = number("ffn", 4 * hidden)
    experts = ""
    if row["experts"]:
        experts = (
            f"experts {{ count = {row['experts']}, top_k = {number('topk', 1)}, ffn = {ffn} }}"
        )
    zero = zero_of(row["zero_stage_or_sharding"])
    steps = pp * chunks
    stages = ""
    if layers % steps:
        # Embedding and loss count as a layer each.
        inner = -(-(layers + 2) // steps)
        rest = layers - 2 * (inner - 1)
        if steps > 2 and rest == inner * (steps - 2):
            counts = [inner - 1, *[inner] * (steps - 2), inner - 1]
        else:
            counts = [layers // steps + (i < layers % steps) for i in range(steps)]
        stages = f"stages = [{', '.join(map(str, counts))}]"
    schedule = f"interleaved(chunks = {chunks})" if chunks > 1 else "one_f_one_b"
    order = "order = [tp, cp, dp, pp]"
    return f"""
model {{
  layers = {layers}  hidden = {hidden}  heads = {heads}  kv_heads = {number("kv_heads", heads)}
  ffn = {ffn}  vocab = {number("vocab", DEFAULT_VOCAB)}  context = {row["seq"]}
  activation = gelu  norm = layernorm  position = rope  bias = all  dropout = 0.1
  tied_embeddings = {"on" if number("vocab", DEFAULT_VOCAB) == DEFAULT_VOCAB else "off"}
  {experts}
}}
cluster {{
  nodes = 1
  node {{ gpus = {world}  gpu from "{GPUS.get(row["gpu"], row["gpu"].lower())}" }}
}}
parallel {{
  tp = {tp}  sequence_parallel = {"on" if row["sp"] == "1" else "off"}
  pp = {pp}  schedule = {schedule}  cp = {cp}  ep = {ep}  etp = {etp_of(row, tp, ep, world // pp)}
  zero = {zero}  vocab_multiple = 128  {stages}  {order}
}}
train {{
  seq = {row["seq"]}  micro_batch = {micro}  global_batch = {batch}
  precision = {row["precision"] or "bf16"}  recompute = {recompute_of(row["recompute"])}
  attention = {attention_of(row["attention"])}  stack = "megatron"
}}
"""


def zero_of(words: str) -> int:
    """The ZeRO stage that a row's words stand for."""
    if "ZeRO-1" in words or "distributed optimizer" in words:
        return 1
    if "optim_grads_params" in words or "ZeRO-3" in words:
        return 3
    return 2 if "ZeRO-2" in words or "optim_grads" in words else 0


def etp_of(row: Row, tp: int, ep: int, ranks: int) -> int:
    """Megatron cuts experts over tp unless told otherwise."""
    return min(tp, max(1, ranks // ep)) if row["experts"] else 1


def recompute_of(words: str) -> str:
    """A row's recompute as the language writes it."""
    if not words or words == "none":
        return "none"
    if words.startswith("full"):
        return "full"
    inside = re.search(r"\[(.*)\]", words)
    flags = [
        RECOMPUTED[word] for word in (inside[1].split() if inside else []) if word in RECOMPUTED
    ]
    return f"selective({', '.join(flags)})" if flags else "selective"


def attention_of(words: str) -> str:
    """The kernel; one that is not stated is the fused one."""
    return "math" if words == "unfused" else "flash"


if __name__ == "__main__":
    main()
