#!/usr/bin/env bash
# Starts gpt2-xl.par: 8 ranks on 1 node, those of `hostfile`. Run it on one of them.
# `bash launch.sh --resume` goes on from the last save.
set -euo pipefail
cd "$(dirname "$0")"

exec deepspeed \
  --hostfile hostfile \
  --num_nodes 1 \
  --num_gpus 8 \
  --master_addr 127.0.0.1 \
  --no_ssh_check \
  --master_port "${MASTER_PORT:-29500}" \
  train.py "$@"
