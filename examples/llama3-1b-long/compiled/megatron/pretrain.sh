#!/usr/bin/env bash
# Starts llama3-1b-long.par on Megatron-LM core 0.19: 8 ranks on 1 node. Run it once on every
# node, with MEGATRON_LM naming a checkout and MASTER_ADDR the first node.
set -euo pipefail
cd "$(dirname "$0")"
: "${MEGATRON_LM:?names the folder of Megatron-LM}"

mapfile -d '' -t arguments < <(grep -v '^#' arguments.txt | xargs printf '%s\0')

exec torchrun \
  --nnodes 1 \
  --nproc-per-node 8 \
  --rdzv-backend "${PET_RDZV_BACKEND:-c10d}" \
  --rdzv-endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \
  "$MEGATRON_LM/pretrain_gpt.py" \
  "${arguments[@]}" \
  "$@"
