"""The two objects of trainjob.yaml as plain data: a ConfigMap with the code, and the TrainJob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from parlay.compiler.backends import slurm
from parlay.compiler.backends.kubernetes.options import Options
from parlay.compiler.spec.blocks import Cluster

API: Final = "trainer.kubeflow.org/v1alpha1"
MANAGER: Final = "parlay/compile"
"""Who owns the patches: a path under a domain, as the Trainer's webhook wants it."""

CODE: Final = "/parlay"
"""Where the emitted code is mounted in every pod."""

CONTAINER: Final = "node"
"""What the Trainer calls the replicated job of the trainer, and its container."""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the objects are made from: names, files by their names, and the environment.

    `claim` is the name of the claim that is mounted as workspace, None for a folder that goes
    with the pod.
    """

    name: str
    cluster: Cluster
    ranks: int
    options: Options
    files: Mapping[str, str]
    env: Mapping[str, str]
    claim: str | None


def config_map(manifest: Manifest) -> Object:
    """The code, a key a file."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(manifest, f"{manifest.name}-code"),
        "data": dict(sorted(manifest.files.items())),
    }


def train_job(manifest: Manifest) -> Object:
    """The job: its runtime, what every node starts with how many GPUs, and the pods' volumes."""
    options = manifest.options
    spec: Object = {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": options.runtime_kind,
            "name": options.runtime,
        },
        "trainer": _trainer(manifest),
        "runtimePatches": [
            {
                "manager": MANAGER,
                "trainingRuntimeSpec": {
                    "template": {
                        "spec": {
                            "replicatedJobs": [
                                {"name": CONTAINER, "template": _job(_pod(manifest))},
                            ]
                        }
                    }
                },
            }
        ],
    }
    if options.deadline is not None:
        spec["activeDeadlineSeconds"] = options.deadline
    labels = {} if options.queue is None else {"kueue.x-k8s.io/queue-name": options.queue}
    return {
        "apiVersion": API,
        "kind": "TrainJob",
        "metadata": _metadata(manifest, manifest.name, labels),
        "spec": spec,
    }


def _metadata(manifest: Manifest, name: str, labels: Mapping[str, str] | None = None) -> Object:
    found: Object = {"name": name}
    if manifest.options.namespace is not None:
        found["namespace"] = manifest.options.namespace
    found["labels"] = {"app.kubernetes.io/managed-by": "parlay", **(labels or {})}
    return found


def _trainer(manifest: Manifest) -> Object:
    found: Object = {} if manifest.options.image is None else {"image": manifest.options.image}
    return {
        **found,
        "command": ["bash", f"{CODE}/start.sh"],
        "numNodes": manifest.cluster.nodes,
        "numProcPerNode": manifest.cluster.node.gpus,
        "resourcesPerNode": _resources(manifest),
        "env": [{"name": name, "value": value} for name, value in manifest.env.items()],
    }


def _resources(manifest: Manifest) -> Object:
    """What one node asks for; as requests too, without which the Trainer counts one process."""
    counted = gpu_resource(manifest.cluster, manifest.options)
    wanted = {counted: str(manifest.cluster.node.gpus), **manifest.options.resources}
    return {"requests": wanted, "limits": dict(wanted)}


def gpu_resource(cluster: Cluster, options: Options) -> str:
    """The resource that counts GPUs; processors for ranks without one."""
    link = cluster.node.link
    kind = link.kind if link else ""
    if options.gpu is not None:
        return options.gpu
    return {"shared_memory": "cpu", "infinity_fabric": "amd.com/gpu"}.get(kind, "nvidia.com/gpu")


def _job(pod: Object) -> Object:
    return {"spec": {"template": {"spec": pod}}}


def _pod(manifest: Manifest) -> Object:
    """Volumes, and where the pods may run."""
    options = manifest.options
    claim = manifest.claim
    work: Object = (
        {"emptyDir": {}} if claim is None else {"persistentVolumeClaim": {"claimName": claim}}
    )
    volumes = [
        {"name": "code", "configMap": {"name": f"{manifest.name}-code"}},
        {"name": "work", **work},
        # Ranks of one node talk through it; a container's own is 64 MiB.
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = {"code": CODE, "work": options.workspace, "shared-memory": "/dev/shm"}
    container: Object = {"name": CONTAINER}
    if rdma(manifest.cluster):
        # Buffers that a network card reads are pinned.
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    container["volumeMounts"] = [{"name": n, "mountPath": path} for n, path in mounts.items()]
    pod: Object = {"containers": [container], "volumes": volumes}
    if options.node_selector:
        pod["nodeSelector"] = dict(options.node_selector)
    if options.tolerations:
        pod["tolerations"] = [{"key": key, "operator": "Exists"} for key in options.tolerations]
    if options.service_account is not None:
        pod["serviceAccountName"] = options.service_account
    if options.pull_secret is not None:
        pod["imagePullSecrets"] = [{"name": options.pull_secret}]
    return pod


def rdma(cluster: Cluster) -> bool:
    """Whether nodes talk over InfiniBand or RoCE."""
    return kind_of_fabric(cluster) in ("infiniband", "roce")


def kind_of_fabric(cluster: Cluster) -> str:
    """The kind of the network that is used; empty for one node, or without GPUs."""
    used = slurm.needed(cluster) and (cluster.nodes or 1) > 1 and cluster.fabric is not None
    return cluster.fabric.kind if used and cluster.fabric else ""
