#!/usr/bin/env bash
# Starts gemma3-12b.par: 8 ranks on 1 node. Run it once on every node.
# `bash launch.sh --resume` goes on from the last save.
set -euo pipefail
cd "$(dirname "$0")"

if [[ "${1:-}" == --resume ]]; then
  export PARLAY_RESUME=1
fi

# Seconds that torchrun leaves its ranks after SIGTERM, for their save; 30 by default.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT="${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-300}"

# What is freed in one size is used again in others: units of weights, rows of experts.
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"

# Makes tokens of the text, unless that was done.
python -m parlay.runtime.prepare .

exec torchrun \
  --nnodes 1 \
  --nproc-per-node 8 \
  --rdzv-backend "${PET_RDZV_BACKEND:-c10d}" \
  --rdzv-endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \
  train.py
