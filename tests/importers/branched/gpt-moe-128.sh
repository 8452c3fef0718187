#!/bin/bash
# GPT of 1.3B with 128 experts in every second layer on 64 GPUs: the numbers of
# https://github.com/deepspeedai/Megatron-DeepSpeed, examples_deepspeed/MoE.
SEQ=2048
BATCH=512
TOKENS=300000000000
# More than it comes to: tokens end it.
ITERS=$(( ${TOKENS} * 3 / ${BATCH} / ${SEQ} ))
GPUS=64
EXPERTS=128
if [[ $EXPERTS -gt $GPUS ]]; then
  SPREAD=$GPUS
else
  SPREAD=$EXPERTS
fi
DROPS="true"
AGAIN="true"
NAME="gpt-ep-${SPREAD}_$(date +%s)"
options=" \
  --override-lr-scheduler --adam-beta1 0.9 --adam-beta2 0.95 \
  --tensor-model-parallel-size 1 --num-experts ${EXPERTS} --moe-expert-parallel-size ${SPREAD} \
  --moe-loss-coeff 0.01 --moe-train-capacity-factor 1.0 --moe-min-capacity 4 \
  --init-method-std 0.014 --lr-decay-tokens ${TOKENS} --lr-warmup-tokens 375000000 \
  --micro-batch-size 8 --global-batch-size ${BATCH} --num-layers 24 --hidden-size 2048 \
  --num-attention-heads 16 --seq-length ${SEQ} --max-position-embeddings ${SEQ} \
  --train-tokens ${TOKENS} --train-iters ${ITERS} --lr 1.2e-4 --min-lr 1.0e-6 \
  --lr-decay-style cosine --split 98,2,0 --weight-decay 0.1 --clip-grad 1.0 --fp16 \
  --vocab-file gpt2-vocab.json --save ${NAME} --save-interval 1000"
if [ "${AGAIN}" = "true" ]; then
options="${options} \
  --checkpoint-activations"
fi
if [[ $EXPERTS -gt 1 ]]; then
options="${options} \
  --create-moe-param-group"
fi
if [ "${DROPS}" = "false" ]; then
options="${options} \
  --disable-moe-token-dropping"
fi
config="ds_${NAME}.json"
sed "s/CONFIG_BATCH_SIZE/${BATCH}/" template.json | sed "s/CONFIG_MBSIZE/8/" > ${config}
engine=" --deepspeed --deepspeed_config ${config} --pipeline-model-parallel-size 1 \
  --no-pipeline-parallel"
run="deepspeed pretrain_gpt.py ${options} ${engine} &> ${NAME}.log"
echo ${run}
eval ${run}
