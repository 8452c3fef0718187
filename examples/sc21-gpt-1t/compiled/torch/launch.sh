#!/usr/bin/env bash
# Starts sc21-gpt-1t.par: 3072 ranks on 384 nodes. Run it once on every node.
# `bash launch.sh --resume` goes on from the last save.
set -euo pipefail
cd "$(dirname "$0")"

if [[ "${1:-}" == --resume ]]; then
  export PARLAY_RESUME=1
fi

# Seconds that torchrun leaves its ranks after SIGTERM, for their save; 30 by default.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT="${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-300}"

exec torchrun \
  --nnodes 384 \
  --nproc-per-node 8 \
  --rdzv-backend "${PET_RDZV_BACKEND:-c10d}" \
  --rdzv-endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \
  train.py
