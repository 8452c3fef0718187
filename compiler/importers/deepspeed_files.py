"""What a DeepSpeed job lies in: its configuration, and the command line and hosts that start it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from parlay.compiler.importers import shell
from parlay.compiler.importers.folder import lacking
from parlay.compiler.importers.hf import Unreadable

LARGEST: Final = 1 << 20
CONFIG: Final = "ds_config.json"

_HEREDOC: Final = re.compile(
    r"^[^\n#]*\bcat\b[^\n]*?<<-?[ \t]*(['\"]?)(\w+)\1[^\n]*\n(?P<body>.*?)^[ \t]*\2[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_WRITTEN_TO: Final = re.compile(r">[ \t]*(['\"]?)([^\s'\"]+)\1")
_HOST: Final = re.compile(r"^[ \t]*([^\s#]+)[ \t]+slots[ \t]*=[ \t]*(\d{1,4})[ \t]*$", re.MULTILINE)
_NAMED: Final = ("deepspeed-config", "deepspeed", "ds-config", "deepspeed-config-file")


@dataclass(slots=True)
class Job:
    """A configuration, what its launcher and its script are told, and its hosts.

    Options are under their names without dashes, `_` as `-`, with all their values. `hosts` maps
    each host to its slots; `plan` and `code` are what Parlay itself wrote beside a
    configuration. What nothing takes of `script` is told in the end. `unset` are the variables of
    the launch script that nothing sets.
    """

    config: dict[str, Any]
    launcher: dict[str, list[str]] = field(default_factory=dict)
    script: dict[str, list[str]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, int] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    code: str = ""
    lost: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    unset: frozenset[str] = frozenset()

    def argument(self, *names: str) -> str | None:
        """The value of the first of these options of the script that has one, taken."""
        self.taken.update(names)
        found = (self.script[name] for name in names if name in self.script)
        return next((values[0] for values in found if values), None)

    def flag(self, *names: str) -> bool:
        """Whether one of these options of the script is given, and not as false; it is taken."""
        self.taken.update(names)
        given = [self.script[name] for name in names if name in self.script]
        return any(values[:1] not in (["False"], ["false"], ["0"]) for values in given)


def find(path: Path) -> Job:
    """The job of a configuration, of a launch script, or of a folder; `Unreadable` with a reason.

    >>> find(Path("ds_config.json")).config["train_batch_size"]  # doctest: +SKIP
    64
    """
    if path.is_dir():
        return _folder(path)
    text = read_text(path)
    if path.suffix == ".json" or text.lstrip().startswith("{"):
        config, lost = _parsed(text)
        return Job(config, lost=lost)
    return _script(path, text)


def _folder(path: Path) -> Job:
    starter = path / "launch.sh"
    if (path / CONFIG).is_file():
        job = _from(path / CONFIG)
    else:
        found = [each for each in sorted(path.glob("*.json")) if _looks_right(each)]
        if len(found) != 1:
            if not found:
                raise Unreadable(lacking(path, CONFIG, "other file with keys of DeepSpeed"))
            names = ", ".join(each.name for each in found)
            raise Unreadable(f"the folder has no {CONFIG}, and several are configurations: {names}")
        job = _from(found[0])
    if starter.is_file():
        words = _command(shell.read(read_text(starter)))
        _split(job, words or [])
    if not job.hosts and (path / "hostfile").is_file():
        job.hosts = hosts(read_text(path / "hostfile"))
    if (path / "plan.json").is_file():
        plan, _ = _parsed(read_text(path / "plan.json"))
        job.plan = plan if "parlay" in plan else {}
        for name in ("train.py", "model.py") if job.plan else ():
            if (path / name).is_file():
                job.code += read_text(path / name)
    return job


def _from(path: Path) -> Job:
    config, lost = _parsed(read_text(path))
    return Job(config, lost=lost)


def _looks_right(path: Path) -> bool:
    try:
        config, _ = _parsed(read_text(path))
    except Unreadable:
        return False
    known = {"train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization"}
    return bool(known & set(config))


def read_text(path: Path) -> str:
    """A file of at most 1 MiB; raises `Unreadable` with the reason."""
    try:
        if not path.is_file():
            raise Unreadable("it is no file" if path.exists() else "there is no such file")
        if path.stat().st_size > LARGEST:
            raise Unreadable(f"it is larger than {LARGEST // 1024} KiB")
        return path.read_text(encoding="utf-8", errors="replace").removeprefix("\ufeff")
    except OSError as failure:
        raise Unreadable(failure.strerror or "it cannot be read") from None


def _parsed(text: str) -> tuple[dict[str, Any], list[str]]:
    """The object of a JSON text, and what of it is overwritten by a second key of the same name."""
    lost: list[str] = []

    def pairs(found: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in found]
        lost.extend(f"{n}: given twice, the last is read" for n in set(names) if names.count(n) > 1)
        return dict(found)

    for form in (text, _plain(text)):
        try:
            config = json.loads(form, object_pairs_hook=pairs)
            break
        except (ValueError, RecursionError):
            lost.clear()
    else:
        raise Unreadable("it is no JSON")
    if not isinstance(config, dict):
        raise Unreadable("it holds no JSON object")
    return config, lost


_COMMENTS: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|#[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)


def _plain(text: str) -> str:
    """A text without comments and last commas, which DeepSpeed's own reader passes over."""
    for pattern in (_COMMENTS, _LAST_COMMA):
        text = pattern.sub(lambda found: found[1] or "", text)
    return text


# ── Launch scripts ────────────────────────────────────────────────────────────


def _script(path: Path, text: str) -> Job:
    """The job that a shell script starts; its configuration lies in it, or beside it."""
    inside: dict[str, tuple[str, bool]] = {}

    def kept(found: re.Match[str]) -> str:
        line = found[0].partition("\n")[0]
        where = _WRITTEN_TO.search(line.replace("<<", "  "))
        if where is not None:
            inside[where[2]] = (found["body"], bool(found[1]))
        return ""

    script = shell.read(_HEREDOC.sub(kept, text), path.parent)
    words = _command(script)
    if words is None:
        raise Unreadable("no command in it names a configuration of DeepSpeed")
    job = Job({})
    _split(job, words)
    job.environment = {n: " ".join(v) for n, v in script.variables.items() if n.isupper()}
    job.unset = frozenset(script.unknown)
    job.lost += script.told()
    bodies = {
        shell.expanded(script, name): body if literal else shell.expanded(script, body)
        for name, (body, literal) in inside.items()
    }
    name = next((v for v in (job.argument(n) for n in _NAMED) if v and v != "True"), None)
    try:
        config, lost = _configuration(path, name, bodies)
    except Unreadable as why:
        if "num-layers" not in job.script:
            raise
        # A command that says the model says most of the job.
        config, lost = {}, [f"{why}: its keys are not read"]
    job.config, job.lost = config, job.lost + lost
    _hosts_of(path, job)
    return job


def _configuration(
    path: Path, name: str | None, bodies: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    if name is None:
        raise Unreadable("its command names no file of a configuration")
    if name in bodies:
        return _parsed(bodies[name])
    for file in (path.parent / name, path.parent / Path(name).name):
        if file.is_file():
            return _parsed(read_text(file))
    raise Unreadable(f"the configuration {name} is not beside it")


def _hosts_of(path: Path, job: Job) -> None:
    for name in ("hostfile", "H"):
        for value in job.launcher.get(name, ())[:1]:
            file = path.parent / value
            if file.is_file():
                job.hosts = hosts(read_text(file))
            else:
                job.lost.append(f"--hostfile {value}: it is not beside the script")


def hosts(text: str) -> dict[str, int]:
    """Host -> slots of a hostfile: `worker-0 slots=8`, a line each."""
    return {name: int(slots) for name, slots in _HOST.findall(text)}


def _command(script: shell.Script) -> list[str] | None:
    """The last command that DeepSpeed starts, or that is told of its configuration."""
    told = [command for command in script.commands if command[0] in ("echo", "printf")]
    run = [command for command in script.commands if command not in told]
    for written in reversed([*told, *run]):
        command = [part for word in written for part in _parts(word)]
        named = any(_option(word) in _NAMED for word in command if word.startswith("--"))
        if named or any(Path(word).name == "deepspeed" for word in command[:1]):
            return command
    return None


def _parts(word: str) -> list[str]:
    """A word of a command line, or the words of a whole one that is handed to another shell."""
    if "--" not in word or not re.search(r"\s--", word):
        return [word]
    try:
        return shlex.split(word)
    except ValueError:
        return word.split()


def _split(job: Job, words: Sequence[str]) -> None:
    """Words to the options of the launcher, those before the Python script, and of the script."""
    start = next((i + 1 for i, word in enumerate(words) if word.endswith(".py")), 0)
    job.launcher = options(words[:start])
    job.script = options(words[start:])
    job.words = list(words[start:])


def options(words: Iterable[str]) -> dict[str, list[str]]:
    """Option -> its values: `--num_gpus 8` --> `{"num-gpus": ["8"]}`."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            written, equals, value = word.partition("=")
            name = _option(written)
            found[name] = [value] if equals else []
        elif name:
            found[name].append(word)
    return found


def _option(word: str) -> str:
    return word.partition("=")[0].lstrip("-").replace("_", "-")
