"""Writes a log of steps as emitted code does, in two runs, and reads it by TensorBoard's reader.

A question is {"folder", "plan", "runs": [[start, stop], …]}; its answer {name: [[step, value], …]}.
"""

import json
import sys
from pathlib import Path

from parlay.runtime.log import Log
from parlay.runtime.plan import Plan
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

for line in sys.stdin:
    question = json.loads(line)
    folder = Path(question["folder"])
    said, sys.stdout = sys.stdout, sys.stderr
    for start, stop in question["runs"]:
        log = Log(Plan.of(question["plan"]), writes=True, folder=folder, start=start)
        for step in range(start, stop):
            log.step(step=step, loss=10.0 * start + step, grad_norm=float("nan"), lr=0.5)
        log.close()
    sys.stdout = said
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    names = events.Tags()["scalars"]
    found = {name: [[one.step, one.value] for one in events.Scalars(name)] for name in names}
    print(json.dumps(found), flush=True)
