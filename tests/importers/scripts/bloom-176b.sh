#!/bin/bash
# The arguments of BLOOM 176B, as bigscience publishes them for Megatron-DeepSpeed on 48 nodes:
# https://github.com/bigscience-workshop/bigscience/blob/master/train/tr11-176B-ml/tr11-176B-ml.slurm
GPUS_PER_NODE=8
NNODES=48
MICRO=2
BATCH=2048
STAGE=0
CONFIG="./ds_config.$SLURM_JOB_ID.json"

cat <<EOT > $CONFIG
{
  "train_micro_batch_size_per_gpu": $MICRO,
  "train_batch_size": $BATCH,
  "gradient_clipping": 1.0,
  "zero_optimization": {"stage": $STAGE},
  "bf16": {"enabled": true},
  "steps_per_print": 2000,
  "wall_clock_breakdown": false
}
EOT

MODEL=" \
  --pp-partition-method 'type:transformer|embedding' \
  --num-layers 70 --hidden-size 14336 --num-attention-heads 112 --seq-length 2048 \
  --max-position-embeddings 2048 --micro-batch-size $MICRO --global-batch-size $BATCH \
  --rampup-batch-size 192 16 9_765_625 --train-samples 220_000_000 --init-method-std 0.0048 \
  --tokenizer-type PretrainedFromHF --embed-layernorm --bf16 --seed 42 \
  --position-embedding-type alibi --checkpoint-activations \
  --abort-on-unmet-fused-kernel-constraints --pad-vocab-size-to 250880"
RECIPE=" \
  --optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps 1e-8 --lr 6e-5 --min-lr 6e-6 \
  --lr-decay-style cosine --lr-decay-samples 200_000_000 --lr-warmup-samples 183_105 \
  --clip-grad 1.0 --weight-decay 1e-1 --exit-duration-in-mins 5990"
DEEPSPEED="--deepspeed --deepspeed_config ${CONFIG} --zero-stage ${STAGE} \
  --deepspeed-activation-checkpointing"
LAUNCHER="python -u -m torch.distributed.run --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES \
  --rdzv_backend c10d --max_restarts 0 --tee 3"
COMMAND="pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 12 \
  $MODEL $RECIPE --log-interval 1 --save-interval 100 --eval-interval 1000 --eval-iters 1 \
  --tensorboard-dir logs/tensorboard --save saves --load saves --data-impl mmap \
  --distributed-backend nccl $DEEPSPEED"
srun --kill-on-bad-exit=1 bash -c "$LAUNCHER --node_rank \$SLURM_PROCID $COMMAND" 2>&1
