#!/bin/bash
# The arguments of Llama 3 8B at fp8 as NVIDIA/Megatron-LM publishes them
# (examples/llama/train_llama3_8b_h100_fp8.sh), with choices taken in branches.
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
DTYPE="fp8"
DATA=${4:-"MOCK"}
CHECKPOINTS="${1:-checkpoints/llama3_8b_fp8}"

MODEL="--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192 \
  --max-position-embeddings 8192 --position-embedding-type rope --rotary-base 1000000 \
  --rotary-percent 1.0 --attention-dropout 0.0 --hidden-dropout 0.0 --swiglu \
  --init-method-std 0.0134 --attention-backend fused --apply-layernorm-1p \
  --untie-embeddings-and-output-weights --disable-bias-linear"
TRAINING=(
  --micro-batch-size 1 --global-batch-size 128 --train-samples 1953125000
  --lr-decay-samples 1949218748 --lr-warmup-samples 3906252 --lr 0.00015 --min-lr 0.00001
  --lr-decay-style cosine --clip-grad 1.0 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95
  --bf16 --grad-reduce-in-bf16 --cross-entropy-loss-fusion --calculate-per-token-loss --manual-gc
  --empty-unused-memory-level 1 --exit-duration-in-mins 235
)
if [[ "$DTYPE" == "fp8" ]]; then
  TRAINING+=("--fp8-format hybrid" "--fp8-amax-history-len 1024" "--fp8-amax-compute-algo max")
fi
if [[ "$DATA" == "MOCK" ]]; then
  SOURCE="--mock-data --tokenizer-type NullTokenizer --vocab-size 128256"
else
  SOURCE="--data-path $DATA"
fi
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py $MODEL ${TRAINING[@]} $SOURCE \
  --tensor-model-parallel-size 1 --context-parallel-size 1 --use-distributed-optimizer \
  --overlap-grad-reduce --overlap-param-gather --split 99,1,0 --num-workers 1 --log-interval 1 \
  --eval-iters 32 --eval-interval 100 --save-interval 1000 --log-throughput --ckpt-format torch_dist \
  --distributed-timeout-minutes 60 --save "$CHECKPOINTS" --load "$CHECKPOINTS"
