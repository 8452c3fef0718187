#!/bin/bash
# The arguments of the GPT models of arXiv:2104.04473 as NVIDIA/Megatron-LM publishes them
# (examples/academic_paper_scripts/sc21/CONFIG.sh), with the 145B row of the paper's table 1.
TP=8
PP=8
NNODES=192
ARGS=" \
	--tensor-model-parallel-size ${TP} \
	--pipeline-model-parallel-size ${PP} \
	--micro-batch-size 2 \
	--global-batch-size 2304 \
	--num-layers 80 \
	--hidden-size 12288 \
	--num-attention-heads 96 \
	--data-path ${MEGATRON_DATA} \
	--vocab-file ${BPE_VOCAB_FILE} \
	--merge-file ${BPE_MERGE_FILE} \
	--log-interval 5 \
	--seq-length 2048 \
	--max-position-embeddings 2048 \
	--train-iters 500 \
	--lr-decay-iters 320 \
	--lr 0.0001 \
	--min-lr 0.00001 \
	--lr-decay-style cosine \
	--lr-warmup-fraction 0.01 \
	--split 969,30,1 \
	--eval-iters 100 \
	--eval-interval 1000 \
	--clip-grad 1.0 \
	--fp16 \
	--recompute-granularity full --recompute-method uniform \
	--loss-scale 8192 \
	--vocab-size 51200"
srun -N $NNODES python -u ${MEGATRON_CODE_DIR}/pretrain_gpt.py ${ARGS}
