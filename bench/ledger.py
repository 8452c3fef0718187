"""How long one ledger takes, from 8 to 131,072 GPUs: `python bench/ledger.py`.

`first` is a layout's first ledger, right after its file was read; `best` the best of several, which
are all that a plan compares; `document` the best with every line, formula and source made, as
`parlay ledger --json --formulas` has them. `memory` and `messages` are parts of `best`.
"""

from __future__ import annotations

import time

from parlay.compiler.layout import Layout, lay_out
from parlay.compiler.ledger.comm import comm_lines
from parlay.compiler.ledger.document import ledger
from parlay.compiler.ledger.memory import account
from parlay.compiler.ledger.to_json import to_json
from parlay.compiler.spec.resolve import Phase, resolve
from parlay.dsl.parse import parse
from parlay.dsl.source import Source

JOBS = (
    ("llama3-8b", "zero = 1"),
    ("llama3-70b", "tp = 8  zero = 1"),
    (
        "llama3.1-405b",
        "tp = 8  pp = 16  zero = 1  schedule = interleaved(chunks = 2)  stages = auto",
    ),
    ("llama3.1-405b", "tp = 8  pp = 16  zero = 1  schedule = zbv  stages = auto"),
    ("deepseek-v3", "tp = 8  ep = 8  zero = 1"),
    ("kimi-k2", "pp = 16  ep = 32  zero = 1  stages = auto"),
)
NODES = (1, 16, 256, 4096, 16384)


def main() -> None:
    """Prints milliseconds of processor time."""
    heads = ("first", "best", "document", "memory", "messages")
    print(f"{'model':14} {'GPUs':>7}" + "".join(f" {head:>8}" for head in heads))
    for model, degrees in JOBS:
        for nodes in NODES:
            if "pp" in degrees and nodes < 256:
                continue
            text = f"""
model from "{model}"
cluster {{ nodes = {nodes}  node from "dgx-h100" }}
parallel {{ {degrees} }}
train {{ seq = 4096  micro_batch = 1  global_batch = {nodes * 64}  steps = 1 }}
"""
            phase = resolve(parse(Source("job.par", text))[0], lambda _: (None, ()))[0][0]
            layout = lay_out(phase.spec)
            runs = [_ms(lambda p=phase, at=layout: ledger(p, at)) for _ in range(9)]
            document = min(_ms(lambda p=phase, at=layout: _document(p, at)) for _ in range(9))
            memory = min(_ms(lambda p=phase, at=layout: account(p.spec, at)) for _ in range(9))
            sent = min(_ms(lambda p=phase, at=layout: comm_lines(p.spec, at)) for _ in range(9))
            row = (runs[0], min(runs), document, memory, sent)
            figures = "".join(f" {each:8.2f}" for each in row)
            print(f"{model:14} {nodes * 8:7}{figures}")


def _document(phase: Phase, layout: Layout) -> object:
    return to_json(ledger(phase, layout), formulas=True)


def _ms(work: object) -> float:
    assert callable(work)
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start)


if __name__ == "__main__":
    main()
