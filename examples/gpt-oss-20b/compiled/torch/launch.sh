#!/usr/bin/env bash
# Starts gpt-oss-20b.par: 16 ranks on 2 nodes. Run it once on every node.
# `bash launch.sh --resume` goes on from the last save.
set -euo pipefail
cd "$(dirname "$0")"

if [[ "${1:-}" == --resume ]]; then
  export PARLAY_RESUME=1
fi

exec torchrun \
  --nnodes 2 \
  --nproc-per-node 8 \
  --rdzv-backend "${PET_RDZV_BACKEND:-c10d}" \
  --rdzv-endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \
  train.py
