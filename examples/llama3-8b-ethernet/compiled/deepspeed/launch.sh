#!/usr/bin/env bash
# Starts llama3-8b-ethernet.par: 32 ranks on 4 nodes, those of `hostfile`. Run it on one of them.
# `bash launch.sh --resume` goes on from the last save.
set -euo pipefail
cd "$(dirname "$0")"

export NCCL_NET="${NCCL_NET:-Socket}"
exec deepspeed \
  --hostfile hostfile \
  --num_nodes 4 \
  --num_gpus 8 \
  --master_addr "${MASTER_ADDR:-}" \
  --master_port "${MASTER_PORT:-29500}" \
  train.py "$@"
