"""Fits the table of efficiencies on published runs, and writes it.

    python bench/fit.py runs.csv [--rows] [--write] [--folds]

A step is a sum of parts, each times a product of factors (`compiler/ledger/time`), so its logarithm
is smooth in the logarithms of the factors. The fit is a Gauss-Newton iteration on ln(predicted /
measured) with Cauchy weights, and a Gaussian prior on every factor around the values of
`prior.toml`: a family or stack with few rows stays where physics puts it.
"""

from __future__ import annotations

import argparse
import copy
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
from parlay.compiler.ledger.time import efficiency
from parlay.compiler.ledger.time.machine import LOW
from parlay.compiler.ledger.time.parts import COMPONENTS
from parlay.compiler.ledger.time.step import Step, price
from rows import Case, case_of, read
from split import FOLDS, fold_of

HERE = Path(__file__).parent
TABLE = HERE.parent / "compiler/ledger/time/efficiency.toml"
SCALE = 0.15
Key = tuple[str, str, str]  # level, row, name


def prior() -> dict[str, Any]:
    """The table before any fit, and how firmly each of its values is held."""
    table = tomllib.loads((HERE / "prior.toml").read_text("utf-8"))
    return table | {"first": True, "moved": {}}


@dataclass
class Problem:
    """The rows of a fit: nominal parts (rows x components), measured seconds, and which parameter
    moves which part."""

    parts: np.ndarray
    fixed: np.ndarray
    measured: np.ndarray
    moves: np.ndarray
    keys: list[Key]
    sigma: np.ndarray
    weights: np.ndarray


def measured_seconds(case: Case) -> float:
    """Seconds of a step at the measured speed, for the batch that the spec holds."""
    train, cluster = case.spec.train, case.spec.cluster
    assert train is not None and cluster is not None
    return train.global_batch * train.seq / case.tokens / cluster.gpus


def levels(case: Case, table: Mapping[str, Any]) -> list[tuple[Key, float, tuple[str, ...]]]:
    """The parameters that move a case: key, sign, components."""
    family, framework, stacks = efficiency.rows(case.spec, table)
    assert case.spec.train is not None
    sigmas = table["sigma"]
    found: list[tuple[Key, float, tuple[str, ...]]] = []
    for name in COMPONENTS:
        if name in table["family"][family]:
            for level, row in (("all", ""), ("family", family)):
                if name in sigmas[level]:
                    found.append(((level, row, name), -1.0, (name,)))
    recipe = case.spec.train.precision
    if recipe in LOW and recipe in table["family"][family]:
        found.append((("family", family, recipe), -1.0, efficiency.recipe_moves(recipe)))
    for level, row in (("framework", framework), *(("stack", name) for name in stacks)):
        for name in sigmas[level]:
            components = efficiency.GROUPED.get(name, (name,))
            found.append(((level, row, name), 1.0, components))
    return found


def problem(cases: Sequence[Case], table: Mapping[str, Any]) -> Problem:
    """The fit of `cases` around `table`."""
    index = {name: c for c, name in enumerate(COMPONENTS)}
    keys: dict[Key, int] = {}
    moved: list[list[tuple[int, float, tuple[str, ...]]]] = []
    for case in cases:
        rows = levels(case, table)
        moved.append([(keys.setdefault(k, len(keys)), s, c) for k, s, c in rows])
    parts = np.zeros((len(cases), len(COMPONENTS)))
    moves = np.zeros((len(cases), len(COMPONENTS), len(keys)))
    for i, case in enumerate(cases):
        step = priced(case, table)
        for name, seconds in step.parts.items():
            parts[i, index[name]] = seconds * step.efficiency.factors[name]
        for key, sign, components in moved[i]:
            for name in components:
                moves[i, index[name], key] += sign
    straggle = index["straggle"]
    sigma = np.array([table["sigma"][level][name] for level, _, name in map(_sigma, keys)])
    return Problem(
        parts=parts,
        fixed=parts[:, straggle],
        measured=np.array([measured_seconds(case) for case in cases]),
        moves=moves,
        keys=list(keys),
        sigma=sigma,
        weights=balance(cases),
    )


_FIRST: dict[int, Step] = {}


def priced(case: Case, table: Mapping[str, Any]) -> Step:
    """A case priced by a table; by the prior's, which every fit starts from, once."""
    if "first" not in table:
        return price(case.spec, case.layout, table)
    if id(case) not in _FIRST:
        _FIRST[id(case)] = price(case.spec, case.layout, table)
    return _FIRST[id(case)]


def _sigma(key: Key) -> Key:
    level, row, name = key
    return (level, row, "recipe" if name in LOW else name)


def balance(cases: Sequence[Case]) -> np.ndarray:
    """Weights: a group of n rows counts like √n, an unexplained outlier little."""
    odd = [case.outlier or _ragged(case) for case in cases]
    counts: dict[str, int] = {}
    for case in cases:
        counts[case.group] = counts.get(case.group, 0) + 1
    weights = np.array([counts[case.group] ** -0.5 for case in cases])
    return np.where(odd, 0.02, 1.0) * weights / weights.mean()


def _ragged(case: Case) -> bool:
    """Whether heads are of a width that tensor cores do not take whole: attention then runs kernels
    that no efficiency here is of."""
    return case.spec.model is not None and bool(case.spec.model.head_dim % 8)


def solve(made: Problem, anchor: np.ndarray, noise: float = 0.08) -> np.ndarray:
    """The logarithms of the factors over the table's; `anchor` is where the prior stands."""
    x = np.zeros(len(made.keys))
    for _ in range(12):
        scaled = made.parts * np.exp(made.moves @ x)
        predicted = scaled.sum(1)
        residual = np.log(predicted / made.measured)
        shares = scaled / predicted[:, None]
        jacobian = np.einsum("ic,icp->ip", shares, made.moves)
        robust = 1.0 / (1.0 + (residual / SCALE) ** 2)
        w = made.weights * robust / noise**2
        hessian = jacobian.T @ (jacobian * w[:, None]) + np.diag(made.sigma**-2)
        gradient = jacobian.T @ (w * residual) + (x - anchor) / made.sigma**2
        step = np.linalg.solve(hessian, -gradient)
        x += np.clip(step, -0.5, 0.5)
        if np.abs(step).max() < 1e-4:
            break
    return x


def applied(table: Mapping[str, Any], keys: Sequence[Key], x: np.ndarray) -> dict[str, Any]:
    """The table with its factors moved by `x`."""
    made = copy.deepcopy(dict(table))
    for (level, row, name), value in zip(keys, x, strict=True):
        if level == "all":
            for family in made["family"].values():
                if name in family:
                    family[name] *= exp(float(value))
            made["moved"][name] = made["moved"].get(name, 0.0) + float(value)
            continue
        at = made[level][row]
        at[name] = at.get(name, 1.0) * exp(float(value))
    return made


def fit(cases: Sequence[Case], rounds: int = 2) -> dict[str, Any]:
    """The table fitted on `cases`; overlap is priced anew with each round's factors."""
    start = prior()
    table: dict[str, Any] = start
    for _ in range(rounds):
        made = problem(cases, table)
        anchor = np.array([_distance(start, table, key) for key in made.keys])
        table = applied(table, made.keys, solve(made, anchor))
        table.pop("first", None)
    return table


def _distance(start: Mapping[str, Any], table: Mapping[str, Any], key: Key) -> float:
    level, row, name = key
    moved = float(table["moved"].get(name, 0.0))
    if level == "all":
        return -moved
    if level == "family":  # what all families moved together is no distance of this one
        return log(start[level][row].get(name, 1.0) / table[level][row].get(name, 1.0)) + moved
    return log(start[level][row].get(name, 1.0) / table[level][row].get(name, 1.0))


def text(table: Mapping[str, Any], note: str) -> str:
    """The table as TOML."""
    lines = [f"# {line}" for line in note.splitlines()]
    for level, row in table.items():
        if level in ("sigma", "first", "moved"):
            continue
        if not all(isinstance(value, dict) for value in row.values()):
            lines += ["", f"[{level}]", *(_pair(k, v) for k, v in row.items())]
            continue
        for name, values in row.items():
            lines += ["", f'[{level}."{name}"]' if "." in name else f"[{level}.{name}]"]
            lines += [_pair(k, v) for k, v in values.items()]
    return "\n".join(lines) + "\n"


def _pair(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"{key} = {str(value).lower()}"
    if isinstance(value, float):
        return f"{key} = {value:.4g}" if value < 1e6 else f"{key} = {value:.6g}"
    return f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}"


def main() -> None:
    """Fits on every row of a file."""
    parser = argparse.ArgumentParser(description="Fit the table of efficiencies.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", action="store_true", help="the rows that the fit saw")
    parser.add_argument("--folds", action="store_true", help="one table a fold, into folds/")
    parser.add_argument("--write", action="store_true", help="into the package")
    arguments = parser.parse_args()
    cases = [c for c in map(case_of, read(arguments.path)) if isinstance(c, Case)]
    if arguments.folds:
        (HERE / "folds").mkdir(exist_ok=True)
        groups = sorted({case.group for case in cases})
        (HERE / "folds/groups.txt").write_text("\n".join(groups) + "\n", "utf-8")
        for fold in range(FOLDS):
            seen = [case for case in cases if fold_of(case.group) != fold]
            note = FOLD_NOTE.format(fold=fold, rows=len(seen))
            (HERE / "folds" / f"{fold}.toml").write_text(text(fit(seen), note), "utf-8")
            if arguments.rows:
                show(f"fold {fold}", seen)
        return
    table = fit(cases)
    if arguments.rows:
        show("all", cases)
    table["band"] = bands(cases)
    note = NOTE.format(rows=len(cases), sources=len({case.source for case in cases}))
    if arguments.write:
        TABLE.write_text(text(table, note), "utf-8")
    else:
        print(text(table, note))


def bands(cases: Sequence[Case]) -> dict[str, float]:
    """The median error of each class, each row priced by the table of its fold."""
    errors: dict[str, list[float]] = {}
    for case in cases:
        path = HERE / "folds" / f"{fold_of(case.group)}.toml"
        step = price(case.spec, case.layout, tomllib.loads(path.read_text("utf-8")))
        error = step.seconds / measured_seconds(case) - 1.0
        errors.setdefault(case.kind, []).append(abs(error))
    return {kind: float(np.median(found)) for kind, found in sorted(errors.items())}


def show(name: str, cases: Sequence[Case]) -> None:
    """The rows that a fit saw."""
    for case in cases:
        print(name, case.row.get("id", ""), case.group, sep="\t")


FOLD_NOTE = "Fold {fold}: fitted on {rows} rows, none of this fold's groups (bench/split.py)."
NOTE = """Efficiencies of the time model, by accelerator family, framework and stack.
Written by bench/fit.py from bench/prior.toml and {rows} published runs of {sources} sources;
docs/accuracy.md says how well such a fit prices runs that it has not seen.
family: share of the nominal rate that a component reaches (fp8, mxfp8, nvfp4: times that).
framework, stack: by how much a component takes longer than the family's figure says.
band: median error of a class on runs that the fit had not seen.
overlap_dp, overlap_cp: share of that traffic that runs beside computation."""


if __name__ == "__main__":
    main()
