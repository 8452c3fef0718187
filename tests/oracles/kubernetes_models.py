"""Whether the models of Kubeflow's own Python interface take a TrainJob: a line of JSON in and out.

Asked: {"text": the manifest}. Answer: {"accepted": …, "why": […]}. A field that the models do not
know is dropped by them, so what they write back is held against what they read.
"""

import json
import sys

import yaml
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def lost(read, written, path="$"):
    """What is in the one and not in the other."""
    if isinstance(read, dict):
        if not isinstance(written, dict):
            return [path]
        return [
            each
            for name, value in read.items()
            for each in lost(value, written.get(name), f"{path}.{name}")
        ]
    if isinstance(read, list):
        if not isinstance(written, list) or len(read) != len(written):
            return [path]
        pairs = enumerate(zip(read, written, strict=True))
        return [each for i, (a, b) in pairs for each in lost(a, b, f"{path}[{i}]")]
    return [] if read == written else [f"{path}: {read!r} -> {written!r}"]


def wrong(value):
    try:
        written = TrainerV1alpha1TrainJob.from_dict(value).to_dict()
    except Exception as why:
        return [f"{type(why).__name__}: {why}"[:500]]
    return lost(value, written)


for line in sys.stdin:
    objects = list(yaml.load_all(json.loads(line)["text"], LOADER))
    jobs = [value for value in objects if value["kind"] == "TrainJob"]
    why = [each for job in jobs for each in wrong(job)]
    print(json.dumps({"accepted": bool(jobs) and not why, "why": why}), flush=True)
