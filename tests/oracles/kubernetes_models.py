"""Whether the models of Kubeflow's own Python interface take a TrainJob: a line of JSON in and out.

Asked: {"text": the manifest}. Answer: {"accepted": …, "why": […]}. The models are generated from
the same types as the CustomResourceDefinitions, with strict types. A field that they do not know is
dropped by them, so what they write back is held against what they read. What is Kubernetes' own is
asked of the strict schemas of kubernetes-validate: objects beside the job, and the pods in it.
"""

import json
import sys

import kubernetes_validate
import yaml
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

VERSION = "1.31"
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
    return lost(value, written) + [each for pod in pods(value) for each in built_in(pod)]


def built_in(value):
    try:
        kubernetes_validate.validate(value, VERSION, strict=True)
    except Exception as why:
        return [f"{type(why).__name__}: {why}"[:500]]
    return []


def pods(value):
    """A pod of each specification of one inside an object."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": value}
        for each in value.values():
            yield from pods(each)
    elif isinstance(value, list):
        for each in value:
            yield from pods(each)


for line in sys.stdin:
    objects = list(yaml.load_all(json.loads(line)["text"], LOADER))
    jobs = [value for value in objects if value["kind"] == "TrainJob"]
    beside = [value for value in objects if value["kind"] != "TrainJob"]
    why = [each for job in jobs for each in wrong(job)]
    why += [each for value in beside for each in built_in(value)]
    print(json.dumps({"accepted": bool(jobs) and not why, "why": why}), flush=True)
