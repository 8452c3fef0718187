#!/bin/bash
# DeepSeek-V2-Lite on 8 MI300X, one of two sizes: the numbers of
# https://github.com/ROCm/Megatron-LM, examples/deepseek_v2.
set -e
HERE="$( cd "$( dirname "$0" )" && pwd )"
WHERE=dsw
SIZE=16B
TP=1
NUMBERS=bf16
AGAIN=sel #full
CUT=true
ALONG=true
if [ -z ${CHUNK} ]; then
    chunks=""
else
    chunks=" \
        --num-layers-per-virtual-pipeline-stage ${CHUNK}"
fi
if [ $WHERE = dsw ]; then
NNODES=1
GPUS_PER_NODE=8

elif [ $WHERE = dlc ]; then
NNODES=${WORLD_SIZE}
GPUS_PER_NODE=${KUBERNETES_CONTAINER_RESOURCE_GPU}

fi
if [ $SIZE = 236B ]; then

WIDTH=5120
HEADS=128
DEPTH=60
experts=" --num-experts 160 --moe-ffn-hidden-size 1536 --moe-router-topk 6 --q-lora-rank 1536"

elif [ $SIZE = 16B ]; then

WIDTH=2048
HEADS=16
DEPTH=27
experts=" \
    --num-experts 64 \
    --moe-ffn-hidden-size 1408 \
    --moe-router-topk 6 \
    --moe-layer-freq '([0]*1+[1]*26)' \
    --moe-aux-loss-coeff 1e-2 \
    --expert-model-parallel-size 8"

fi
HIDES=$(( ($TP > 1) ? 1 : 0 ))
hiding="\
    --overlap-grad-reduce \
    --overlap-param-gather"
if [ $HIDES -eq 1 ]; then
    hiding="--tp-comm-overlap"
fi
if [ $AGAIN = full ]; then
    again=" \
		    --recompute-method uniform \
            --recompute-granularity full"
elif [ $AGAIN = sel ]; then
    again=" \
        --recompute-activations"
fi
case $NUMBERS in
  fp16) numbers=" --fp16 --apply-query-key-layer-scaling";;
  bf16|mixed)
    numbers=" \
        --bf16"
    ;;
  *) numbers=" --bf16 --fp8-format hybrid";;
esac
if [ $CUT = true ]; then
    cut=" \
		    --use-distributed-optimizer"
fi
if [ $ALONG = true ] && [ $TP -gt 1 ]; then
    along=" \
		    --sequence-parallel"
elif [ $ALONG = false ]; then
    along=" \
                    "
fi
[ -n "$EXTRA_NOTES" ] || NOTE="none"
options="  \
        --lr 1e-5 --min-lr 1e-6 --lr-decay-style cosine --lr-warmup-iters 2 \
        --train-iters 20 --micro-batch-size 4 --global-batch-size 256 \
        --num-layers ${DEPTH} --hidden-size ${WIDTH} --num-attention-heads ${HEADS} \
        --ffn-hidden-size 10944 --seq-length 2048 --max-position-embeddings 163840 \
        --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size 1 \
        --tokenizer-type DeepSeekV2Tokenizer --swiglu --normalization RMSNorm --norm-epsilon 1e-06 \
        --use-rotary-position-embeddings --untie-embeddings-and-output-weights \
        --disable-bias-linear --attention-dropout 0.0 --hidden-dropout 0.0 --use-flash-attn \
        --save ${HERE}/saves
        "
starter="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"
run="torchrun $starter /workspace/pretrain_deepseek.py
 ${options} ${numbers} ${again} \
 ${cut} ${along} ${experts} ${hiding} ${chunks}"
run="$run | tee $LOG"
echo ${run}
eval ${run}
set +x
