#!/usr/bin/env bash
# Starts olmo-7b.par: 256 ranks on 32 nodes, those of `hostfile`. Run it on one of them.
# `bash launch.sh --resume` goes on from the last save.
set -euo pipefail
cd "$(dirname "$0")"

export NCCL_NET="${NCCL_NET:-IB}"
export NCCL_IB_TIMEOUT="${NCCL_IB_TIMEOUT:-22}"
exec deepspeed \
  --hostfile hostfile \
  --num_nodes 32 \
  --num_gpus 8 \
  --master_addr "${MASTER_ADDR:-}" \
  --master_port "${MASTER_PORT:-29500}" \
  train.py "$@"
