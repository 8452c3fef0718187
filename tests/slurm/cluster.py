"""A Slurm on loopback: munge, the controller and a daemon a node, in a folder that goes with it.

Nodes are as large as a test wants them; with GPUs they have files in their place. `Cluster.ask`
runs Slurm's own commands against it. Everything that was started is ended, whatever happens.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "sinfo")
FOLDERS: Final = ("/usr/sbin", "/sbin")

CONF: Final = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser={user}
SlurmdUser={user}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=5
MinJobAge=3600
FirstJobId={first}
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=INFINITE
"""


def missing() -> str:
    """Why there can be no cluster here; empty where there can."""
    lacking = [name for name in PROGRAMS if _program(name) is None]
    return f"no {', '.join(lacking)}: Debian has them in slurm-wlm and munge" if lacking else ""


def own_name() -> str:
    """What this machine is called, without its domain."""
    return socket.gethostname().partition(".")[0]


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *FOLDERS)))


@dataclass
class Cluster:
    """A running Slurm: `conf` is its slurm.conf, `names` are its nodes, the first this machine."""

    folder: Path
    nodes: int
    gpus: int
    daemons: int
    started: list[Path] = field(default_factory=list)

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def names(self) -> list[str]:
        # Ranks meet on the first node in the order of names, so that is to be this machine's own.
        return [own_name(), *(f"{own_name()}z{number}" for number in range(2, self.nodes + 1))]

    def environment(self) -> dict[str, str]:
        """This process's environment, with the commands pointed here."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        # Without byte code every rank would compile what it imports.
        own.pop("PYTHONDONTWRITEBYTECODE", None)
        return {**own, "SLURM_CONF": str(self.conf)}

    def idle(self) -> int:
        """How many nodes are up, with no job on them and done with the last one."""
        told = self.ask("sinfo", "--noheader", "--Node", "--format=%T").stdout
        return told.split().count("idle")

    def steps(self, job: str) -> int:
        """How many of a job's steps are still alive on the nodes, its batch shell among them."""
        return sum(f"[{job}." in line for line in _commands() if line.startswith("slurmstepd"))

    def ask(
        self, *command: object, cwd: Path | None = None, timeout: float = 60, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A command of Slurm's, `ask("sbatch", "--test-only", path)`, and how it ended."""
        return subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env={**self.environment(), **variables},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def shown(self, job: str) -> dict[str, str]:
        """What `scontrol show job` says, by key."""
        text = self.ask("scontrol", "--oneliner", "show", "job", job).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def until(self, job: str, *states: str, timeout: float) -> dict[str, str]:
        """Waits for a state of a job; raises TimeoutError with the last one seen."""
        deadline = time.monotonic() + timeout
        shown = self.shown(job)
        while shown.get("JobState") not in states:
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job} is {shown.get('JobState')}, not {states}: {shown}")
            time.sleep(0.3)
            shown = self.shown(job)
        return shown


@contextlib.contextmanager
def cluster(*, nodes: int, gpus: int = 0, daemons: int | None = None) -> Iterator[Cluster]:
    """A Slurm of so many nodes with so many GPUs, of which the first `daemons` (all) run jobs."""
    # Sockets have short names, so not below pytest's folders.
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    folder.chmod(0o755)
    up = Cluster(folder, nodes, gpus, nodes if daemons is None else daemons)
    try:
        _write(up)
        _start(up)
        yield up
    finally:
        _stop(up)
        shutil.rmtree(folder, ignore_errors=True)


def _write(up: Cluster) -> None:
    for name in ("state", *(f"spool-{node}" for node in up.names[: up.daemons])):
        (up.folder / name).mkdir()
    ports = _free_ports(1 + up.daemons)
    host = own_name()
    # Jobs meet on ports that follow their numbers: those of two clusters are to be apart.
    first = secrets.randbelow(10_000) + 1
    text = CONF.format(
        folder=up.folder, host=host, port=ports[0], user=getpass.getuser(), first=first
    )
    gres = f" Gres=gpu:{up.gpus}" if up.gpus else ""
    size = f"NodeAddr=127.0.0.1 CPUs=64 RealMemory=1000000{gres}"
    for node, port in zip(up.names, ports[1:], strict=False):
        text += f"NodeName={node} NodeHostname={host} Port={port} {size} State=UNKNOWN\n"
    if up.daemons < up.nodes:
        # As nodes that a cloud would start: a job may be tested against them, and none runs.
        text += f"NodeName={host}z[{up.daemons + 1}-{up.nodes}] {size} State=CLOUD\n"
    text += "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    up.conf.write_text(text)
    if up.gpus:
        for number in range(up.gpus):
            (up.folder / f"gpu{number}").touch()
        files = f"{up.folder}/gpu[0-{up.gpus - 1}]"
        (up.folder / "gres.conf").write_text(f"Name=gpu File={files}\n")
    key = up.folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]


def _start(up: Cluster) -> None:
    folder = up.folder
    munge = [f"--{name}={folder}/munge.{name}" for name in ("socket", "log", "seed")]
    munge += [f"--key-file={folder}/munge.key", f"--pid-file={folder}/munge.pid"]
    _daemon(up, folder / "munge.pid", "munged", "--force", "--num-threads=2", *munge)
    _daemon(up, folder / "slurmctld.pid", "slurmctld", "-f", up.conf)
    for node in up.names[: up.daemons]:
        _daemon(up, folder / f"slurmd-{node}.pid", "slurmd", "-f", up.conf, "-N", node)
    deadline = time.monotonic() + 120
    while (idle := up.idle()) < up.daemons:
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text()[-800:] for path in folder.glob("*.log"))
            raise TimeoutError(f"{idle} of {up.daemons} nodes are up after 120 s\n{logs}")
        time.sleep(0.25)


def _daemon(up: Cluster, pid: Path, name: str, *options: object) -> None:
    up.started.append(pid)
    program = _program(name)
    assert program is not None, name
    ended = subprocess.run(
        [program, *map(str, options)],
        env=up.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if ended.returncode:
        raise RuntimeError(f"{name} ended with {ended.returncode}: {ended.stderr[-2000:]}")


def _commands() -> Iterator[str]:
    """The command lines of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace").replace("\0", " ")


def _stop(up: Cluster) -> None:
    """Jobs are cancelled, then the daemons end, the last started first."""
    if up.conf.is_file():
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            if up.ask("squeue", "--noheader", timeout=10).stdout.strip():
                up.ask("scancel", f"--user={getpass.getuser()}", timeout=10)
                deadline = time.monotonic() + 15
                while up.ask("squeue", "--noheader", timeout=10).stdout.strip():
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.3)
    running = [number for path in reversed(up.started) if (number := _pid(path)) is not None]
    for ending in (signal.SIGTERM, signal.SIGKILL):
        for number in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, ending)
        deadline = time.monotonic() + 5
        while (running := [n for n in running if _alive(n)]) and time.monotonic() < deadline:
            time.sleep(0.1)


def _pid(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"
