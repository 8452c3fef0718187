#!/usr/bin/env bash
# Starts tiny.par in one process.
set -euo pipefail
cd "$(dirname "$0")"

exec python train.py
