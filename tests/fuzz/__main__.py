"""`python -m tests.fuzz --inputs 1000000`: a long hunt; findings are written as files."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from pathlib import Path

from tests.fuzz.hunt import Finding, chunk

CHUNK = 500


def main() -> int:
    """0 where nothing was found."""
    reader = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    reader.add_argument("--inputs", type=int, default=20_000, help="how many (default 20,000)")
    reader.add_argument("--seed", type=int, default=0, help="the first seed")
    reader.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    reader.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="where findings go")
    given = reader.parse_args()
    chunks = -(-given.inputs // CHUNK)
    tasks = [(given.seed + number, CHUNK) for number in range(chunks)]
    seen: dict[str, Finding] = {}
    began = time.monotonic()
    # Fresh processes now and then: their memory is a part of what is measured.
    with multiprocessing.Pool(given.processes, maxtasksperchild=20) as pool:
        for done, findings in enumerate(pool.imap_unordered(chunk, tasks), 1):
            for finding in findings:
                if finding.place in seen:
                    continue
                seen[finding.place] = finding
                given.out.mkdir(parents=True, exist_ok=True)
                name = given.out / f"{len(seen):03}"
                name.with_suffix(".par").write_bytes(finding.data)
                name.with_suffix(".txt").write_text(finding.what)
                print(f"\n{name}.par: {finding.place}", flush=True)
            rate = done * CHUNK / (time.monotonic() - began)
            print(f"\r{done * CHUNK:,} inputs, {rate:.0f}/s, {len(seen)} found", end="", flush=True)
    print()
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
