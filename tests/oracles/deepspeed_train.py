"""Trains by emitted train.py files: ranks forked on this machine, one job after the other.

Reads `{"folder": "…", "world": 2, "out": "…", "arguments": ["--resume"]}` a line and answers
`{"statuses": [0, 0], "metrics": [{"step": 0, "loss": …}, …], "told": "…"}`, where `told` is the end
of what the ranks printed. DeepSpeed's all-reduce over shared memory is left out: a compiler would
have to build it first.
"""

import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

os.environ |= {"DS_ACCELERATOR": "cpu", "DS_LOG_LEVEL": "error", "OMP_NUM_THREADS": "1"}

import deepspeed
import deepspeed.ops
import deepspeed.pipe
import torch

# What ZeRO asks for by and by: each rank of each job would import it otherwise, in ten seconds.
import torch._dynamo
import torch._inductor.compile_fx
import torch.distributed.tensor

SECONDS = 240
"""The longest that a job may take."""

deepspeed.ops.__compatible_ops__ = {}
torch.set_num_threads(1)


def rank(job, number, port, log):
    """One rank, in a process of its own; never returns."""
    status = 1
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.environ |= {
            "RANK": str(number),
            "LOCAL_RANK": str(number),
            "WORLD_SIZE": str(job["world"]),
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(port),
            "PARLAY_OUT": job["out"],
        }
        sys.argv = ["train.py", *job.get("arguments", [])]
        sys.path.insert(0, job["folder"])
        runpy.run_path(f"{job['folder']}/train.py", run_name="__main__")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def train(job):
    out = Path(job["out"])
    out.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    log = out / "told.txt"
    log.unlink(missing_ok=True)
    running = {}
    for number in range(job["world"]):
        child = os.fork()
        if child == 0:
            rank(job, number, port, log)
        running[child] = number
    statuses, until = {}, time.monotonic() + SECONDS
    while running:
        for child in list(running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                statuses[running.pop(child)] = os.waitstatus_to_exitcode(status)
        failed = any(statuses.values())
        if running and (failed or time.monotonic() > until):
            for child in running:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.05)
    metrics = out / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return {
        "statuses": [statuses[number] for number in range(job["world"])],
        "metrics": [json.loads(line) for line in lines],
        "told": log.read_text()[-3000:],
    }


for line in sys.stdin:
    print(json.dumps(train(json.loads(line))), flush=True)
