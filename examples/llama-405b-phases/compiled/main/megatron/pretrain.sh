#!/usr/bin/env bash
# Starts llama-405b-phases.par on Megatron-LM core 0.19: 8192 ranks on 1024 nodes. Run it once on every
# node, with MEGATRON_LM naming a checkout and MASTER_ADDR the first node.
set -euo pipefail
cd "$(dirname "$0")"
: "${MEGATRON_LM:?names the folder of Megatron-LM}"

# Kernels start in the order in which they are asked for: tp and cp overlap by it.
export CUDA_DEVICE_MAX_CONNECTIONS=1

# What NCCL is told of the fabric.
export NCCL_NET="${NCCL_NET:-IB}"
export NCCL_IB_GID_INDEX="${NCCL_IB_GID_INDEX:-3}"
export NCCL_IB_TIMEOUT="${NCCL_IB_TIMEOUT:-22}"

mapfile -d '' -t arguments < <(grep -v '^#' arguments.txt | xargs printf '%s\0')

exec torchrun \
  --nnodes 1024 \
  --nproc-per-node 8 \
  --rdzv-backend "${PET_RDZV_BACKEND:-c10d}" \
  --rdzv-endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \
  "$MEGATRON_LM/pretrain_gpt.py" \
  "${arguments[@]}" \
  "$@"
