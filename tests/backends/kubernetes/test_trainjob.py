"""trainjob.yaml without a cluster: each field by facts of the Trainer's API, written by hand."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from parlay.compiler import pipeline
from parlay.compiler.backends.kubernetes import names

TEXT = (
    'model from "gpt2-xl" {{ dropout = 0 }}\n'
    'cluster {{ nodes = {nodes}, node from "{node}"{inside}\n  fabric {{ kind = {fabric} }} }}\n'
    "parallel {{ {parallel} }}\n"
    "train {{ seq = 1Ki, micro_batch = 8, global_batch = 128, steps = 10\n"
    "  lr_schedule = cosine{weights} }}\n{rest}\n"
)
DATA = "data { format = text }"
FIVE = {"parallel": "tp = 5, sequence_parallel = off, dp = 2", "inside": " { gpus = 5 }"}
Compile = Callable[..., tuple[dict[str, Any], dict[str, Any]]]


def text(**parts: Any) -> str:
    given = {"nodes": 2, "node": "dgx-a100", "inside": "", "fabric": "infiniband"}
    return TEXT.format(**{**given, "parallel": "", "rest": "", "weights": "", **parts})


def target(options: str) -> str:
    return f'target "kubernetes" {{ options {{ {options} }} }}'


@pytest.fixture
def emitted(tmp_path: Path) -> Compile:
    """The ConfigMap and the TrainJob of a file."""

    def compiled(name: str = "job.par", **parts: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        path = tmp_path / name
        path.write_text(text(**parts))
        job = pipeline.check(path, ("kubernetes",))
        assert not job.errors, [said.message for said in job.errors]
        files = pipeline.emit(job, "kubernetes").files
        assert list(files) == ["kubernetes/trainjob.yaml"]
        code, train = yaml.safe_load_all(files["kubernetes/trainjob.yaml"])
        return code, train

    return compiled


def pod(train: dict[str, Any]) -> dict[str, Any]:
    """The patch of the trainer's pods."""
    [patch] = train["spec"]["runtimePatches"]
    [job] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    # The torch runtime of the Trainer calls the replicated job, and its container, `node`.
    assert job["name"] == "node"
    spec: dict[str, Any] = job["template"]["spec"]["template"]["spec"]
    assert [container["name"] for container in spec["containers"]] == ["node"]
    return spec


def environment(train: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in train["spec"]["trainer"]["env"]}


def test_the_objects_fit_together(emitted: Compile) -> None:
    code, train = emitted()
    assert (code["apiVersion"], code["kind"]) == ("v1", "ConfigMap")
    assert (train["apiVersion"], train["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert train["spec"]["runtimeRef"]["name"] == "torch-distributed"
    volumes = {each["name"]: each for each in pod(train)["volumes"]}
    mounts = {m["name"]: m["mountPath"] for m in pod(train)["containers"][0]["volumeMounts"]}
    assert set(volumes) == set(mounts), "a list keyed by name: each volume is mounted once"
    assert volumes["code"]["configMap"]["name"] == code["metadata"]["name"]
    assert volumes["shared-memory"]["emptyDir"] == {"medium": "Memory"}
    assert mounts["shared-memory"] == "/dev/shm"
    command = train["spec"]["trainer"]["command"]
    assert command == ["bash", f"{mounts['code']}/start.sh"]
    assert {"start.sh", "train.py", "model.py", "mesh.py", "plan.json"} == set(code["data"])
    assert f"torchrun {mounts['code']}/train.py" in code["data"]["start.sh"]


def test_the_manager_of_a_patch_is_a_path_under_a_domain(emitted: Compile) -> None:
    [patch] = emitted()[1]["spec"]["runtimePatches"]
    assert re.fullmatch(r"[a-z0-9.-]+/[A-Za-z0-9/_.-]+", patch["manager"])


def test_the_code_is_that_of_the_target_torch(emitted: Compile, tmp_path: Path) -> None:
    code, _ = emitted(**FIVE)
    files = pipeline.emit(pipeline.check(tmp_path / "job.par", ("torch",)), "torch").files
    for name in ("train.py", "model.py", "mesh.py", "plan.json"):
        assert code["data"][name] == files[f"torch/{name}"]


@pytest.mark.parametrize(("nodes", "inside", "each"), [(2, "", 8), (1, " { gpus = 4 }", 4)])
def test_quantities(emitted: Compile, nodes: int, inside: str, each: int) -> None:
    trainer = emitted(nodes=nodes, inside=inside)[1]["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (nodes, each)
    # Without requests the Trainer starts one process a node, whatever the limits are.
    wanted = {"nvidia.com/gpu": str(each)}
    assert trainer["resourcesPerNode"] == {"requests": wanted, "limits": wanted}


def test_gpus_of_amd_and_ranks_without_one(emitted: Compile, tiny: Path) -> None:
    _, train = emitted(node="mi300x-8")
    assert train["spec"]["trainer"]["resourcesPerNode"]["limits"] == {"amd.com/gpu": "8"}
    [manifest] = pipeline.emit(pipeline.check(tiny), "kubernetes").files.values()
    _, train = yaml.safe_load_all(manifest)
    assert train["spec"]["trainer"]["resourcesPerNode"]["limits"] == {"cpu": "8"}


@pytest.mark.parametrize(
    ("fabric", "said"),
    [
        ("infiniband", {"NCCL_NET": "IB", "NCCL_IB_TIMEOUT": "22"}),
        ("roce", {"NCCL_NET": "IB", "NCCL_IB_GID_INDEX": "3", "NCCL_IB_TIMEOUT": "22"}),
        ("ethernet", {"NCCL_NET": "Socket"}),
        ("slingshot", {"NCCL_NET": "AWS Libfabric", "FI_PROVIDER": "cxi"}),
    ],
)
def test_what_nccl_is_told(emitted: Compile, fabric: str, said: dict[str, str]) -> None:
    _, train = emitted(fabric=fabric)
    assert environment(train) == {"PARLAY_OUT": "/workspace/job", **said}
    pinned = "securityContext" in pod(train)["containers"][0]
    assert pinned == (fabric in ("infiniband", "roce"))
    assert "NCCL_NET" not in environment(emitted(nodes=1, fabric=fabric)[1])


def test_a_job_that_saves_goes_on_from_its_saves(emitted: Compile) -> None:
    saves = 'checkpoint { path = "saves", every = 5 }'
    _, train = emitted(rest=saves)
    assert environment(train)["PARLAY_RESUME"] == "1"
    work = {each["name"]: each for each in pod(train)["volumes"]}["work"]
    assert work["persistentVolumeClaim"] == {"claimName": "job"}
    _, train = emitted()
    assert "PARLAY_RESUME" not in environment(train)
    assert {each["name"]: each for each in pod(train)["volumes"]}["work"]["emptyDir"] == {}


def test_a_claim_holds_data_and_saves_below_the_workspace_alone(emitted: Compile) -> None:
    def claim(rest: str = "", **parts: str) -> Any:
        train = emitted(rest=rest, **parts)[1]
        work = {each["name"]: each for each in pod(train)["volumes"]}["work"]
        return work.get("persistentVolumeClaim", {}).get("claimName")

    assert claim('data { path = "corpus", format = megatron }') == "job"
    assert claim('data { path = "/nfs/corpus", format = megatron }') is None
    assert claim('data { path = "/workspace/c", format = megatron }') == "job"
    assert claim("checkpoint { every = 5 }") == "job"
    assert claim(target('claim = "runs"')) == "runs"
    for path, held in (("w", "job"), ("/nfs/w", None)):
        assert claim(weights=f', weights = "{path}"') == held


def test_the_options(emitted: Compile) -> None:
    options = """
      image = "registry.example/team/parlay:1.2@sha256:00", namespace = "team-a"
      runtime = "ours", runtime_kind = TrainingRuntime, claim = "runs", workspace = "/scratch"
      deadline = 12h, queue = "batch", resources = ["rdma/ib=1", "cpu=96", "memory=1.5Ti"]
      env = ["NCCL_NET=IB2", "FLAG=1e3", "TEXT=on"]
      node_selector = ["zone=a"], tolerations = ["nvidia.com/gpu"]
      service_account = "trainer", pull_secret = "registry"
    """
    code, train = emitted(rest=target(options))
    spec, trainer = train["spec"], train["spec"]["trainer"]
    assert train["metadata"]["namespace"] == code["metadata"]["namespace"] == "team-a"
    assert train["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "batch"
    assert spec["activeDeadlineSeconds"] == 12 * 3600
    assert (spec["runtimeRef"]["kind"], spec["runtimeRef"]["name"]) == ("TrainingRuntime", "ours")
    assert trainer["image"] == "registry.example/team/parlay:1.2@sha256:00"
    assert trainer["resourcesPerNode"]["limits"] == {
        "nvidia.com/gpu": "8",
        "rdma/ib": "1",
        "cpu": "96",
        "memory": "1.5Ti",
    }
    assert environment(train) == {
        "PARLAY_OUT": "/scratch/job",
        "NCCL_IB_TIMEOUT": "22",
        "NCCL_NET": "IB2",
        "FLAG": "1e3",
        "TEXT": "on",
    }
    assert pod(train)["nodeSelector"] == {"zone": "a"}
    assert pod(train)["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert pod(train)["serviceAccountName"] == "trainer"
    assert pod(train)["imagePullSecrets"] == [{"name": "registry"}]
    assert "cd /scratch\n" in code["data"]["start.sh"]


def test_megatron_is_started_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    data = 'data { path = "corpus", format = megatron }\n'
    path.write_text(
        text(
            **FIVE,
            rest=data + target("entry = megatron"),
        )
    )
    job = pipeline.check(path, ("kubernetes",))
    assert not job.errors, [said.message for said in job.errors]
    code, train = yaml.safe_load_all(
        pipeline.emit(job, "kubernetes").files["kubernetes/trainjob.yaml"]
    )
    theirs = pipeline.emit(job, "megatron").files
    assert code["data"]["arguments.txt"] == theirs["megatron/arguments.txt"]
    assert set(code["data"]) == {"arguments.txt", "start.sh"}
    assert environment(train) == {
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "NCCL_IB_TIMEOUT": "22",
        "NCCL_NET": "IB",
    }


def test_deepspeed_is_started_too(emitted: Compile) -> None:
    saves = 'checkpoint { path = "saves", every = 5 }\n'
    code, train = emitted(parallel="zero = 1", rest=saves + target("entry = deepspeed"))
    assert {"ds_config.json", "train.py", "model.py", "plan.json", "start.sh"} <= set(code["data"])
    assert not {"launch.sh", "hostfile"} & set(code["data"])
    assert "torchrun /parlay/train.py --resume\n" in code["data"]["start.sh"]
    told = {"NCCL_NET": "IB", "NCCL_IB_TIMEOUT": "22"}
    assert environment(train) == {"PARLAY_OUT": "/workspace/job", **told}


def test_what_is_asked_for_beside_it_is_started(tmp_path: Path, parlay: Callable[..., Any]) -> None:
    path, out = tmp_path / "job.par", tmp_path / "out"
    path.write_text(text(parallel="zero = 1", rest='data { path = "c", format = megatron }'))

    def names(*targets: str) -> dict[str, str]:
        asked = [word for name in targets for word in ("-t", name)]
        ended = parlay("compile", path, *asked, "-t", "kubernetes", "-o", out, "--force")
        assert ended.status == 0, ended.err
        files = sorted((out / "kubernetes").glob("*.yaml"))
        found = {}
        for file in files:
            _, train = yaml.safe_load_all(file.read_text())
            assert f"create -f {file.name}`" in file.read_text()
            found[file.name] = train["metadata"]["name"]
        return found

    assert names() == {"trainjob.yaml": "job"}
    assert names("deepspeed") == {"trainjob.yaml": "job"}
    assert "deepspeed" in (out / "kubernetes/trainjob.yaml").read_text()
    assert names("torch", "megatron") == {
        "trainjob-megatron.yaml": "job-megatron",
        "trainjob-torch.yaml": "job-torch",
    }


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ('namespace = "Team A"', "B353"),
        ('namespace = "a.b"', "B353"),
        ('claim = "../x"', "B353"),
        ('image = "a b"', "B353"),
        ("image = 3", "B353"),
        ('workspace = "relative"', "B353"),
        ('workspace = "/a/../b"', "B353"),
        ("deadline = 0", "B353"),
        ("deadline = on", "B353"),
        ('resources = ["cpu"]', "B353"),
        ('resources = ["cpu=many"]', "B353"),
        ('resources = ["cpu=1", "cpu=2"]', "B353"),
        ('resources = ["nvidia.com/gpu=4"]', "B353"),
        ('env = ["PET_NNODES=3"]', "B353"),
        ('env = ["A B=3"]', "B353"),
        ('queue = "a b"', "B353"),
        ("entry = slurm", "B353"),
        ('node_selector = ["a/b/c=d"]', "B353"),
        ("iamge = x", "B352"),
    ],
)
def test_what_is_refused(tmp_path: Path, option: str, code: str) -> None:
    path = tmp_path / "job.par"
    path.write_text(text(rest=f"{DATA}\n{target(option)}"))
    [said] = [
        each for each in pipeline.check(path, ("kubernetes",)).diagnostics if each.code[0] == "B"
    ]
    assert said.code == code
    assert said.span is not None
    place = path.read_text()[said.span.start : said.span.end]
    assert place == option.partition(" = ")[2]
    assert not pipeline.emit(pipeline.check(path), "kubernetes").files


def test_what_the_code_cannot_express_is_told_at_its_field(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    degrees = "zero = 1, offload = nvme(optimizer)"
    path.write_text(text(parallel=degrees, rest=target('image = "x"')))
    told = pipeline.check(path, ("kubernetes",)).errors
    assert [said.code for said in told] == ["B301"]


def test_what_the_cluster_brings_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(text(rest=f'checkpoint {{ path = "saves", every = 5 }}\n{DATA}\n'))
    [said] = [
        each for each in pipeline.check(path, ("kubernetes",)).diagnostics if each.code[0] == "B"
    ]
    assert (said.code, said.severity.value, len(said.help)) == ("B354", "note", 3)
    options = 'image = "x", claim = "y", resources = ["rdma/ib=1"]'
    path.write_text(path.read_text() + target(options))
    assert not [e for e in pipeline.check(path, ("kubernetes",)).diagnostics if e.code[0] == "B"]


# ── Names ─────────────────────────────────────────────────────────────────────

NAMES = [
    ("runs/llama-70b.par", "main", "llama-70b"),
    ("My Job (1).par", "main", "my-job-1"),
    ("70b.par", "main", "parlay-70b"),
    ("long.par", "long context", "long-long-context"),
    ("x.par", "a-b", None),
    ("x.par", "a b", "x-a-b"),
    ("x.par", "A b", None),
    ("\u202e漢.par", "main", "job"),
    ("a" * 300 + ".par", "main", None),
    ("-.par", "../..", None),
]


def test_names_are_labels_of_rfc_1035() -> None:
    found = [names.job_name(file, phase) for file, phase, _ in NAMES]
    assert len(set(found)) == len(found)
    for name, (_, _, expected) in zip(found, NAMES, strict=True):
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
        # NAME-node-0-INDEX-SUFFIX names a pod, in 63 characters.
        assert len(f"{name}-node-0-1000000-abcde") <= 63
        assert expected is None or name == expected


def test_phases_are_jobs_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    phases = 'phase "a b" { train { steps = 20 } }\nphase "a-b" { train { steps = 30 } }'
    path.write_text(text(rest=phases))
    files = pipeline.emit(pipeline.check(path), "kubernetes").files
    jobs = [list(yaml.safe_load_all(text))[1]["metadata"]["name"] for text in files.values()]
    assert len(jobs) == len(set(jobs)) == 3


def test_the_start_script_is_one_of_bash(emitted: Compile) -> None:
    script = emitted()[0]["data"]["start.sh"]
    assert subprocess.run(["bash", "-n"], input=script, text=True, timeout=60).returncode == 0
