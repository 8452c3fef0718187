"""`parlay run` trains on real text, and the emitted folder starts by its own launch.sh."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TINY = ROOT / "examples" / "tiny" / "tiny.par"


def parlay(*arguments: str, timeout: int = 600) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "parlay.compiler.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def unigram_entropy() -> float:
    """Of the text's bytes in nats: the best loss of a model that sees no context."""
    from pydoc_data import topics

    counts = Counter("\n".join(topics.topics.values()).encode())
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values())


@pytest.mark.timeout(900)
def test_tiny_learns(tmp_path: Path) -> None:
    done = parlay("run", str(TINY), "--out", str(tmp_path), timeout=800)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = json.loads((tmp_path / "torch" / "plan.json").read_text())["steps"]
    assert len(lines) == steps
    keys = {"step", "loss", "grad_norm", "lr", "tokens", "tokens_per_second", "seconds", "mfu"}
    assert all(set(line) == keys for line in lines)
    assert lines[0]["loss"] > 5.0  # log(257) = 5.55: nothing known yet
    last = sum(line["loss"] for line in lines[-10:]) / 10
    assert last < 0.85 * unigram_entropy(), (last, unigram_entropy())


@pytest.mark.timeout(600)
def test_launch_script_starts_the_ranks(tmp_path: Path) -> None:
    text = TINY.read_text()
    steps = next(line for line in text.splitlines() if line.strip().startswith("steps"))
    short = text.replace(steps, "  steps = 2")
    (tmp_path / "short.par").write_text(short)
    done = parlay("compile", str(tmp_path / "short.par"), "--target", "torch", "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    ran = subprocess.run(
        ["bash", str(tmp_path / "torch" / "launch.sh")],
        capture_output=True,
        text=True,
        timeout=500,
        env=environment,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    lines = (tmp_path / "torch" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 2


@pytest.mark.timeout(300)
def test_text_is_made_tokens_of_once(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from pydoc_data import topics

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    texts = [topics.topics[name] for name in sorted(topics.topics)[:20]]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|endoftext|>"], show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "text.jsonl").write_text(lines)
    (tmp_path / "job.par").write_text(
        f"""model {{ layers = 2, hidden = 64, heads = 4, ffn = 128, vocab = 600 }}
cluster {{ node from "laptop" {{ gpus = 2 }} }}
parallel {{ tp = 2 }}
train {{ seq = 32, micro_batch = 2, global_batch = 16, steps = 8, precision = fp32
  optimizer = adamw(lr = 1e-2), lr_schedule = constant }}
data {{ path = "{tmp_path}/text.jsonl", tokenizer = "{tmp_path}/tokenizer.json" }}
"""
    )
    out = ("--out", str(tmp_path / "out"))
    done = parlay("run", str(tmp_path / "job.par"), *out, timeout=200)
    assert done.returncode == 0, done.stderr
    count = sum(len(made.encode(text).ids) + 1 for text in texts)
    assert f"20 documents, {count} tokens: {tmp_path}/text.jsonl." in done.stdout
    told = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert told[-1]["loss"] < told[0]["loss"] - 0.3
    (tmp_path / "text.jsonl").write_text(lines.replace("the", "their"))
    again = [sys.executable, "-m", "parlay.runtime.prepare", str(tmp_path / "out/torch")]
    done = subprocess.run(again, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and " there already" not in done.stdout, done.stderr
    done = subprocess.run(again, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and " there already" in done.stdout, done.stderr
