#!/usr/bin/env bash
# Starts tiny-moe.par: 8 ranks on 1 node. Run it once on every node.
set -euo pipefail
cd "$(dirname "$0")"

exec torchrun \
  --nnodes 1 \
  --nproc-per-node 8 \
  --rdzv-backend "${PET_RDZV_BACKEND:-c10d}" \
  --rdzv-endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \
  train.py
