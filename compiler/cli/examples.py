"""What the help of a command shows below its options."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "check": ("check job.par", "check *.par --target megatron --json", "check job.par --fix"),
    "fmt": ("fmt job.par", "fmt --check --diff *.par", "fmt - < job.par"),
    "init": ("init job --model llama3-8b --cluster dgx-h100",),
    "schema": ("schema > parlay.schema.json",),
    "lsp": ("lsp",),
    "layout": ("layout job.par", "layout job.par --rank 5", "layout job.par --groups --json"),
    "ledger": (
        "ledger job.par --formulas",
        "ledger job.par --nodes 8,16,32 --json",
        "ledger job.par --at 430TFLOP/s --target megatron",
    ),
    "diff": ("diff before.par after.par", 'diff a.par b.par --fail-if "memory.peak > +2%"'),
    "explain": ("explain L201", "explain --field parallel.dp job.par"),
    "plan": ("plan job.par", "plan job.par --objective cost --top 10", "plan job.par --write"),
    "compile": (
        "compile job.par --target torch -o out",
        "compile job.par --target megatron,slurm -o out",
        "compile --target list",
    ),
    "run": ("run job.par --steps 20", "run job.par --out runs/first --resume"),
    "verify": ("verify job.par", "verify job.par --code out --json"),
    "export": (
        "export runs/job -o weights",
        "export out -o weights --save saves/step-00000100 --dtype bfloat16",
    ),
    "timeline": ("timeline job.par -o trace.json", "timeline job.par --microbatches 8"),
    "report": ("report job.par -o report.html", "report job.par --nodes 8,16,32"),
    "compare": ("compare job.par runs/job/metrics.jsonl",),
    "calibrate": ("calibrate -o measured.json", "calibrate --from all_reduce.log -o measured.json"),
    "import": (
        "import hf config.json -o job.par",
        "import megatron pretrain.sh --gpus 64 -o job.par",
        "import deepspeed ds_config.json --model llama3-8b",
    ),
    "catalog": ("catalog", "catalog model", "catalog gpu h100-sxm"),
}


def shown(name: str) -> str | None:
    """The lines of a command's examples, which the help does not fold."""
    lines = "\n".join(f"  parlay {line}" for line in EXAMPLES.get(name, ()))
    return f"\b\nExamples:\n{lines}" if lines else None
