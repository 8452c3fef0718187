"""job.sbatch: read by bash, plain where Slurm takes no quotes, only where there is a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends import slurm

ROOT = Path(__file__).parents[2]

TEXT = """
model {{
  layers = 4, hidden = 512, heads = 8, kv_heads = 8, ffn = 1024, vocab = 1024, rope(theta = 10000)
}}
cluster {{ {cluster} }}
parallel {{ pp = 2 }}
train {{
  seq = 64, micro_batch = 1, global_batch = 256, precision = bf16, steps = 10
  lr_schedule = cosine(warmup = 2)
}}
{more}
"""

FABRICS = {
    "infiniband": [
        'export NCCL_NET="${NCCL_NET:-IB}"',
        'export NCCL_IB_TIMEOUT="${NCCL_IB_TIMEOUT:-22}"',
    ],
    "roce": [
        'export NCCL_NET="${NCCL_NET:-IB}"',
        'export NCCL_IB_GID_INDEX="${NCCL_IB_GID_INDEX:-3}"',
        'export NCCL_IB_TIMEOUT="${NCCL_IB_TIMEOUT:-22}"',
    ],
    "ethernet": ['export NCCL_NET="${NCCL_NET:-Socket}"'],
    "slingshot": [
        'export NCCL_NET="${NCCL_NET:-AWS Libfabric}"',
        'export FI_PROVIDER="${FI_PROVIDER:-cxi}"',
    ],
}


def files(folder: Path, cluster: str, more: str = "", *, name: str = "job.par") -> dict[str, str]:
    path = folder / name
    path.write_text(TEXT.format(cluster=cluster, more=more))
    job = pipeline.check(path, ["torch"])
    assert not job.errors, [error.message for error in job.errors]
    return pipeline.emit(job, "torch").files_of("torch")


def read_by_bash(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("kind", FABRICS)
def test_several_nodes(kind: str, tmp_path: Path) -> None:
    cluster = f'nodes = 4, node from "dgx-h100", fabric {{ kind = {kind} }}'
    found = files(tmp_path, cluster)
    text = found["job.sbatch"]
    read_by_bash(text)
    read_by_bash(found["launch.sh"])
    lines = text.splitlines()
    exports = [line for line in lines if line.startswith("export NCCL") or "FI_" in line]
    assert exports == FABRICS[kind]
    settings = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")]
    assert settings == [
        "job-name=job",
        "nodes=4",
        "ntasks-per-node=1",
        "gpus-per-node=8",
        "exclusive",
        "output=%x-%j.out",
        "open-mode=append",
        "no-requeue",
    ]
    assert lines[-3:] == [
        "srun --kill-on-bad-exit=1 --open-mode=append --output=logs/%x-%j-%n.out \\",
        '  bash -c "$node" - \\',
        "  bash launch.sh",
    ]
    assert 'scontrol show hostnames "$SLURM_JOB_NODELIST"' in text
    assert "trap" not in text and "requeue" not in text.replace("no-requeue", "")


def test_a_job_that_saves_is_queued_again(tmp_path: Path) -> None:
    text = files(tmp_path, 'nodes = 2, node from "dgx-h100"', "checkpoint { every = 5 }")[
        "job.sbatch"
    ]
    read_by_bash(text)
    assert "#SBATCH --requeue\n#SBATCH --signal=B:USR1@300\n" in text
    assert text.endswith('  bash launch.sh --resume &\nranks=$!\nwait "$ranks"\n')


def test_one_node_of_gpus_needs_no_meeting_place(tmp_path: Path) -> None:
    text = files(tmp_path, 'node from "dgx-h100"')["job.sbatch"]
    read_by_bash(text)
    assert "MASTER" not in text and "NCCL" not in text


def test_a_laptop_has_no_queue(tmp_path: Path) -> None:
    assert "job.sbatch" not in files(tmp_path, 'node from "laptop"')


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-70b.par", "llama-70b"),
        ("my job (1).par", "my-job-1"),
        ("--help.par", "help"),
        ("a\n#SBATCH --uid=0.par", "a-SBATCH---uid-0"),
        ("$(reboot).par", "reboot"),
        ("ü.par", "parlay"),
        ("x" * 99 + ".par", "x" * 64),
    ],
)
def test_a_name_is_made_plain(name: str, expected: str) -> None:
    assert slurm.plain(name) == expected


def test_a_strange_file_name_stays_a_name(tmp_path: Path) -> None:
    name = "a`touch b`$(touch c)\n#SBATCH --uid=0\n.par"
    found = files(tmp_path, 'node from "dgx-h100"', name=name)
    for file in ("job.sbatch", "launch.sh"):
        read_by_bash(found[file])
        lines = found[file].splitlines()
        assert not any("touch" in line for line in lines if not line.startswith("#"))
        assert not any(line.startswith("#SBATCH --uid") for line in lines)


# ── The target slurm ──────────────────────────────────────────────────────────

MEGATRON = 'data { path = "corpus", format = megatron }\ncheckpoint { path = "saves", every = 4 }'


def asked(folder: Path, *targets: str, more: str = "", name: str = "job.par") -> pipeline.Job:
    path = folder / name
    path.write_text(TEXT.format(cluster='nodes = 4, node from "dgx-h100"', more=more))
    return pipeline.check(path, targets)


def emitted(folder: Path, *targets: str, more: str = "") -> dict[str, str]:
    """What `--target` for each, the last of them slurm, puts into its folder."""
    job = asked(folder, *targets, more=more)
    assert not job.errors, [error.message for error in job.errors]
    return pipeline.emit(job, targets[-1], targets).files_of("slurm")


def command(text: str) -> str:
    read_by_bash(text)
    started = text.partition("\nsrun ")[2].partition(" &\n")[0]
    words = started.replace("\\\n", " ").split()
    return " ".join(words[words.index("-") + 1 :])


@pytest.mark.parametrize(
    ("beside", "more", "expected"),
    [
        ((), "", "bash ../torch/launch.sh"),
        (("torch",), "checkpoint { every = 4 }", "bash ../torch/launch.sh --resume"),
        (
            ("megatron",),
            MEGATRON,
            "bash ../megatron/pretrain.sh --exit-signal-handler --exit-signal SIGUSR1",
        ),
        (
            (),
            f'{MEGATRON}\ntarget "slurm" {{ options {{ entry = megatron }} }}',
            "bash ../megatron/pretrain.sh --exit-signal-handler --exit-signal SIGUSR1",
        ),
        (
            ("torch",),
            f'{MEGATRON}\ntarget "slurm" {{ options {{ entry = megatron }} }}',
            "bash ../megatron/pretrain.sh --exit-signal-handler --exit-signal SIGUSR1",
        ),
    ],
    ids=["alone", "torch", "megatron", "named", "named beside another"],
)
def test_the_entry_point(beside: tuple[str, ...], more: str, expected: str, tmp_path: Path) -> None:
    files = emitted(tmp_path, *beside, "slurm", more=more)
    assert list(files) == ["job.sbatch"]
    assert command(files["job.sbatch"]) == expected


def test_deepspeed_starts_without_its_launcher(tmp_path: Path) -> None:
    from parlay.compiler.backends.slurm.entries import job_of

    job = asked(tmp_path, more="checkpoint { every = 4 }")
    text = slurm.script(job_of("deepspeed", job.phases[0], job.sources))
    assert command(text) == (
        'torchrun --nnodes 4 --nproc-per-node 8 --rdzv-endpoint "${MASTER_ADDR:-localhost}:'
        '${MASTER_PORT:-29500}" ../deepspeed/train.py --resume'
    )
    assert "DS_ACCELERATOR" not in text


def test_several_entry_points_have_a_job_each(tmp_path: Path) -> None:
    files = emitted(tmp_path, "megatron", "torch", "slurm", more=MEGATRON)
    assert sorted(files) == ["job-megatron.sbatch", "job-torch.sbatch"]
    assert "../megatron/" in command(files["job-megatron.sbatch"])
    assert "../torch/" in command(files["job-torch.sbatch"])


def test_what_the_entry_point_cannot_express_is_told_with_the_way_out(tmp_path: Path) -> None:
    job = asked(
        tmp_path, "slurm", more='data { path = "corpus", format = text, tokenizer = "x.model" }'
    )
    (told,) = job.errors
    assert told.code == "B301" and "target torch" in told.message
    assert "`--target megatron --target slurm`" in told.help[-1]


def test_settings_of_the_site_stand_in_every_job(tmp_path: Path) -> None:
    more = (
        'target "slurm" { options { time = 36h, partition = "a,b", account = lab-1, qos = high, '
        'constraint = "h100&ib", reservation = "r_2" } }'
    ).replace("lab-1", '"lab-1"')
    expected = [
        "#SBATCH --account=lab-1",
        "#SBATCH --partition=a,b",
        "#SBATCH --qos=high",
        "#SBATCH --constraint=h100&ib",
        "#SBATCH --reservation=r_2",
        "#SBATCH --time=36:00:00",
    ]
    own = files(tmp_path, 'nodes = 4, node from "dgx-h100"', more)["job.sbatch"]
    for text in (own, emitted(tmp_path, "slurm", more=more)["job.sbatch"]):
        lines = text.splitlines()
        at = lines.index(expected[0])
        assert lines[at : at + len(expected)] == expected
        assert lines[1] == "# Queues job.par: `sbatch job.sbatch`."


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ("partitions = gpu", "B361"),
        ("entry = torchtitan", "B362"),
        ("entry = 1", "B362"),
        ('account = "my team"', "B362"),
        ('account = "a\\n#SBATCH --uid=0"', "B362"),
        ('partition = "--wrap"', "B362"),
        ('qos = "$(reboot)"', "B362"),
        ("time = 90s", "B362"),
        ("time = 24", "B362"),
        ('time = "1:00"', "B362"),
    ],
)
@pytest.mark.parametrize("target", ["torch", "slurm"])
def test_an_option_that_is_unfit(option: str, code: str, target: str, tmp_path: Path) -> None:
    more = f'target "slurm" {{ options {{ {option} }} }}'
    job = asked(tmp_path, target, more=more)
    (told,) = job.errors
    assert told.code == code
    source = job.sources[told.file]
    shown = source.text[told.span.start : told.span.end]
    assert shown == option.partition("= ")[2]


SAVED = 'checkpoint { path = "saves", every = 5 }\n'


@pytest.mark.parametrize(("limit", "refused"), [("1min", True), ("6min", True), ("7min", False)])
def test_a_limit_that_the_signal_takes_up(limit: str, refused: bool, tmp_path: Path) -> None:
    """The job would be told to save as it starts, and queue itself again without end."""
    more = f'target "slurm" {{ options {{ time = {limit} }} }}\n'
    told = asked(tmp_path, "slurm", more=SAVED + more).errors
    assert [said.code for said in told] == (["B363"] if refused else [])
    # What does not save asks for no signal.
    assert not asked(tmp_path, "slurm", more=more).errors


def test_a_version_of_slurm_is_refused(tmp_path: Path) -> None:
    job = asked(tmp_path, "slurm", more='target "slurm" { version = "23.02" }')
    assert [told.code for told in job.errors] == ["B361"]


def test_every_megatron_has_the_signal_that_the_job_asks_for() -> None:
    """Held against the options that its own parsers have."""
    from parlay.compiler.backends.slurm.entries import SAVES_AT_SIGNAL

    tables = sorted((ROOT / "compiler/backends/megatron/options").glob("*.json"))
    assert tables
    handler, option, name = SAVES_AT_SIGNAL.split()
    for table in tables:
        text = table.read_text()
        found = {line.split('"')[1]: line for line in text.splitlines() if ' "--exit-' in line}
        assert '"kind": "on"' in found[handler]
        assert f'"{name}"' in found[option].partition('"choices"')[2]
