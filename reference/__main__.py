"""`python -m parlay.reference DIR`: the steps of DIR/reference.json over DIR/batches.pt."""

from __future__ import annotations

import argparse
from pathlib import Path

from parlay.reference.train import run

parser = argparse.ArgumentParser(prog="python -m parlay.reference", description=__doc__)
parser.add_argument("dir", type=Path)
run(parser.parse_args().dir)
