#!/usr/bin/env bash
# Starts gpt-oss-20b.par on Megatron-LM core 0.19: 16 ranks on 2 nodes. Run it once on every
# node, with MEGATRON_LM naming a checkout and MASTER_ADDR the first node.
set -euo pipefail
cd "$(dirname "$0")"
: "${MEGATRON_LM:?names the folder of Megatron-LM}"

# What NCCL is told of the fabric.
export NCCL_NET="${NCCL_NET:-IB}"
export NCCL_IB_TIMEOUT="${NCCL_IB_TIMEOUT:-22}"

mapfile -d '' -t arguments < <(grep -v '^#' arguments.txt | xargs printf '%s\0')

exec torchrun \
  --nnodes 2 \
  --nproc-per-node 8 \
  --rdzv-backend "${PET_RDZV_BACKEND:-c10d}" \
  --rdzv-endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \
  "$MEGATRON_LM/pretrain_gpt.py" \
  "${arguments[@]}" \
  "$@"
