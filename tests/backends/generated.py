"""Jobs from a hat: whole `.par` files over every field that back ends differ in."""

from __future__ import annotations

from math import prod
from random import Random

MODELS = ("llama3-8b", "gpt2-xl", "qwen3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite")
QUICK = "quick_geglu, glu_clamp = 7, glu_offset = 1"
STRETCHED = (
    "llama3(factor = 8)",
    "yarn(factor = 32, original = 4096, truncate = off)",
    "yarn(factor = 4, original = 32768, beta_fast = 16, mscale = 0.7, mscale_all_dim = 0.5)",
)
HEAD = 'cluster {{ nodes = {nodes}, node from "{node}" }}\n'
TAIL = 'data {{ path = "{path}", format = megatron{validation} }}\n'


def job(random: Random) -> str:
    """A file that may be legal or not; its fields are drawn one by one."""
    pick = random.choice
    model, moe = _model(random)
    tp, pp, cp = pick((1, 1, 2, 4, 8)), pick((1, 1, 2, 4)), pick((1, 1, 1, 2))
    ep, etp = (pick((1, 2, 4, 8)), pick((1, 1, 2))) if moe else (1, 1)
    nodes = max(1, -(-prod((tp, pp, cp, pick((1, 2, 4)))) // 8))
    fields = [f"tp = {tp}", f"pp = {pp}", f"cp = {cp}", f"ep = {ep}", f"etp = {etp}"]
    fields.append(f"zero = {pick((0, 1, 1, 1, 2, 3))}")
    fields.append(f"order = [{pick(('tp, cp, dp, pp', 'tp, cp, pp, dp', 'tp, cp, dp, pp'))}]")
    if pp > 1:
        fields.append(f"schedule = {pick(('one_f_one_b', 'one_f_one_b', 'interleaved'))}")
    if cp > 1:
        fields.append(f"cp_method = {pick(('ring', 'allgather', 'ulysses'))}")
    if random.random() < 0.3:
        fields.append(f"overlap = {pick(('on', 'off'))}")
    if random.random() < 0.4:
        fields.append(f"vocab_multiple = {pick((64, 128))}")
    if pp > 1 and random.random() < 0.3:
        fields.append("stages = auto")
    if tp > 1 and random.random() < 0.2:
        fields.append("sequence_parallel = off")
    node = pick(("dgx-h100", "dgx-a100", "dgx-b200"))
    return (
        model
        + HEAD.format(nodes=nodes, node=node)
        + f"parallel {{ {', '.join(fields)} }}\n"
        + _train(random, moe)
        + TAIL.format(
            path=pick(("data/corpus", "/a path/it's here", "data/$HOME")),
            validation=pick(("", ", validation = 5%")),
        )
        + pick(("", 'checkpoint { path = "saves", every = 100 }\n'))
        + pick(("", "log { every = 10, tensorboard = on }\n"))
    )


def _model(random: Random) -> tuple[str, bool]:
    pick = random.choice
    if random.random() < 0.5:
        name = pick(MODELS)
        dropout = " { dropout = 0 }" if random.random() < 0.5 else ""
        return f'model from "{name}"{dropout}\n', name not in MODELS[:3]
    heads, width = pick((8, 16, 32)), pick((64, 128))
    layers = pick((4, 8, 12, 24))
    fields = [
        f"layers = {layers}, hidden = {heads * width}, heads = {heads}, head_dim = {width}",
        f"kv_heads = {pick((heads, 8))}, ffn = {pick((1024, 2816, 4096))}",
        f"vocab = {pick((32000, 50257, 65536))}, context = 8192",
        f"activation = {pick(('swiglu', 'swiglu', QUICK, 'gelu', 'gelu_tanh', 'relu2'))}",
        f"norm = {pick(('rmsnorm', 'layernorm'))}, norm_eps = {pick(('1e-5', '1e-6'))}",
        f"bias = {pick(('none', 'none', 'qkv', 'all'))}",
        f"tied_embeddings = {pick(('on', 'off'))}, dropout = {pick(('0', '0.1'))}",
        f"qk_norm = {pick(('none', 'per_head'))}",
    ]
    if random.random() < 0.8:
        partial = pick(("", ", partial = 0.5"))
        scaling = pick(("", ", scaling = 4"))
        fields.append(f"rope(theta = {pick(('10000', '500000'))}{partial}{scaling})")
        if not (partial or scaling) and random.random() < 0.6:
            fields.append(f"rope_scaling = {pick(STRETCHED)}")
    else:
        fields.append(f"position = {pick(('learned', 'none'))}")
    if random.random() < 0.2:
        fields.append(f"window(size = 1024, every = {pick((1, 4))})")
    moe = random.random() < 0.4
    if moe:
        shared = pick(("", "shared = 1", "shared = 2, shared_ffn = 512"))
        router = pick(("", "router = sigmoid", "router = sigmoid, router_bias = on"))
        groups = pick(("", "groups = 4, top_groups = 2"))
        layers_of = pick(("", "dense_layers = 1", "every = 2"))
        loss = pick(("", "aux_loss = 0.01"))
        parts = [f"count = {pick((8, 16))}, top_k = {pick((1, 2))}, ffn = 1024"]
        parts += [part for part in (shared, router, groups, layers_of, loss) if part]
        fields.append(f"experts {{ {', '.join(parts)} }}")
        # Where Megatron has biases, its router has one too.
        fields = [one.replace("bias = all", "bias = [qkv, out, mlp, router]") for one in fields]
    return "model {\n  " + "\n  ".join(fields) + "\n}\n", moe


def _train(random: Random, moe: bool) -> str:
    pick = random.choice
    fields = [
        f"seq = {pick((1024, 2048, 4096))}",
        f"micro_batch = {pick((1, 2))}",
        f"global_batch = {pick((64, 128))}",
        f"precision = {pick(('bf16', 'bf16', 'bf16', 'fp16', 'fp32', 'fp8'))}",
        pick(("steps = 1000", "tokens = 1B")),
        f"clip = {pick(('1.0', '0', '0.5'))}",
        f"seed = {pick((0, 1234))}",
    ]
    lr, decay = pick(("3e-4", "0.00012")), pick(("0.1", "0"))
    states = pick(("", "", ", states = bf16"))
    adam = f"adamw(lr = {lr}, betas = [0.9, 0.95], weight_decay = {decay}{states})"
    fields.append(f"optimizer = {pick((adam, adam, 'sgd(lr = 0.01, momentum = 0.9)'))}")
    schedules = (
        "constant(warmup = 10)",
        "cosine(warmup = 100, min_lr = 1e-5)",
        "linear(min_lr = 0)",
        "wsd(warmup = 10, decay = 50, min_lr = 1e-6)",
    )
    fields.append(f"lr_schedule = {pick(schedules)}")
    again = ["none", "full", "full(first = 1)", "selective", "selective(mlp, norm)"]
    again += ["selective(experts)", "selective(activation)"] if moe else []
    fields.append(f"recompute = {pick(again)}")
    if random.random() < 0.3:
        fields.append("gradients = bf16")
    if random.random() < 0.2:
        fields.append("attention = math")
    return "train {\n  " + "\n  ".join(fields) + "\n}\n"


def fsdp_job(random: Random) -> str:
    """A file of the Llama family and its mixtures, sharded by FSDP: what torchtitan is for."""
    pick = random.choice
    moe, heads = random.random() < 0.4, pick((8, 16))
    tp, pp, cp = pick((1, 2, 4)), pick((1, 1, 2, 4)), pick((1, 1, 2))
    ep = pick((1, 2, 4)) if moe else 1
    gpus = tp * pp * cp * pick((1, 2, 4))
    zero = pick((0, 2, 3, 3)) if cp == 1 else pick((2, 3))
    fields = [f"tp = {tp}, pp = {pp}, cp = {cp}, ep = {ep}, zero = {zero}"]
    if pp > 1:
        schedules = ("one_f_one_b", "gpipe", "interleaved", "zbv", "dualpipe_v")
        fields.append(f"schedule = {pick(schedules)}")
    if cp > 1:
        fields.append("cp_method = allgather")
    if pp > 1 and random.random() < 0.3:
        fields.append("stages = auto")
    model = [
        f"layers = {pick((8, 16))}, hidden = {heads * 64}, heads = {heads}",
        f"kv_heads = {pick((4, 8))}",
        f"ffn = 2048, vocab = {pick((32000, 50257))}, context = 8192",
        f"rope(theta = {pick(('10000', '500000'))}), qk_norm = {pick(('none', 'per_head'))}",
        f"tied_embeddings = {pick(('on', 'off')) if pp == 1 else 'off'}",
    ]
    if moe:
        parts = ["count = 8, top_k = 2, ffn = 512", f"router = {pick(('softmax', 'sigmoid'))}"]
        parts += [pick(("", "shared = 1", "dense_layers = 1", "every = 2", "router_bias = on"))]
        model.append(f"experts {{ {', '.join(part for part in parts if part)} }}")
    train = [
        f"seq = {pick((1024, 4096))}, micro_batch = {pick((1, 2))}, global_batch = 64",
        f"steps = 500, recompute = {pick(('none', 'full'))}, clip = {pick(('1.0', '0'))}",
        f"precision = {pick(('bf16', 'bf16', 'fp32'))}, compile = {pick(('on', 'off'))}",
        f"lr_schedule = {pick(('cosine(warmup = 9, min_lr = 1e-5)', 'wsd(decay = 50)', 'linear'))}",
    ]
    return (
        "model {\n  " + "\n  ".join(model) + "\n}\n"
        f'cluster {{ nodes = 1, node from "dgx-h100" {{ gpus = {gpus} }} }}\n'
        f"parallel {{ {', '.join(fields)} }}\n"
        "train {\n  " + "\n  ".join(train) + "\n}\n"
        'data { path = "a \'path\'", format = text, tokenizer = "assets" }\n'
        + pick(("", 'checkpoint { path = "saves", every = 100, keep = 3 }\n'))
    )


def torch_job(random: Random) -> str:
    """A file within what the torch back end emits, but for recomputed norms and a few others."""
    pick = random.choice
    tp, pp, dp = pick((1, 2, 4)), pick((1, 1, 2, 4)), pick((1, 2, 3, 4))
    split = pick(("gpipe", "one_f_one_b", "interleaved(chunks = 2)"))
    zero = pick((0, 1, 1, 2, 3, 3))
    share = ", shard = 2" if dp == 4 and zero and pick((True, False)) else ""
    cp = pick((1, 1, 2, 4))
    model = [
        f"layers = {pick((8, 16))}, hidden = 128, heads = 8, kv_heads = {pick((1, 2, 4, 8))}",
        f"ffn = 256, vocab = {pick((1000, 1024, 50257))}, context = 256, dropout = 0",
        f"activation = {pick(('swiglu', 'gelu', 'relu2'))}",
        f"norm = {pick(('rmsnorm', 'layernorm'))}",
        f"embedding_norm = {pick(('on', 'off', 'off'))}, bias = {pick(('none', 'qkv', 'all'))}",
        f"tied_embeddings = {pick(('on', 'off'))}",
        f"qk_norm = {pick(('none', 'per_head', 'full'))}",
        f"position = {pick(('rope', 'learned', 'alibi', 'none'))}",
        f"norm_placement = {pick(('before', 'before', 'after', 'both'))}",
    ]
    parallel = [
        f"tp = {tp}, pp = {pp}, dp = {dp}, zero = {zero}{share}",
        f"vocab_multiple = {pick((1, 16))}, overlap = {pick(('on', 'off'))}",
        f"schedule = {split if pp > 1 else 'one_f_one_b'}",
    ]
    if tp > 1:
        parallel.append(f"sequence_parallel = {pick(('on', 'off'))}")
    if cp > 1:
        ring = pick(("ring", f"ulysses_ring(inner = 2, outer = {cp // 2})"))
        slopes = any("alibi" in line for line in model)
        method = pick(("allgather", "ulysses", *(() if slopes else (ring, ring))))
        parallel.append(f"cp = {cp}, cp_method = {method}, order = [tp, cp, dp, pp]")
    again = ("none", "full", "full(first = 1)", "full(every = 2)", "selective", "selective(mlp)")
    train = [
        f"seq = 64, micro_batch = {pick((1, 2))}, global_batch = 96, steps = 3",
        f"precision = {pick(('bf16', 'fp32'))}, gradients = {pick(('fp32', 'bf16'))}",
        f"clip = {pick(('1.0', '0'))}, recompute = {pick(again)}",
    ]
    if pick((True, False, False, False)):
        rank = pick(("", "q_rank = 24, "))
        model = [line for line in model[1:] if not line.startswith(("qk_norm", "position"))]
        model.append("layers = 8, hidden = 128, heads = 8")
        model.append(f"mla {{ {rank}kv_rank = 16, nope_dim = 8, rope_dim = 8, v_dim = 16 }}")
    elif zero < 2 and pick((True, False, False)):
        train.append("lora = lora(rank = 4, alpha = 8)")
    if "lora" not in train[-1] and pick((True, False)):
        model = [line.replace("bias = all", "bias = qkv") for line in model]
        ep, etp = pick((1, 2, 4)), pick((1, 1, 2))
        shared = pick(("", "shared = 1,", "shared = 2, dense_layers = 1,", "every = 2,"))
        router = pick(("softmax", "sigmoid", "sigmoid, router_bias = on"))
        sizes = f"count = 8, top_k = 2, ffn = 64, router = {router}"
        model.append(f"experts {{ {shared} aux_loss = {pick(('0', '0.01'))}, {sizes} }}")
        parallel = [line for line in parallel if not line.startswith("sequence_parallel")]
        parallel[0] += f", ep = {ep}, etp = {etp}"
        train[-1] = train[-1].replace("selective(mlp)", "selective(mlp, experts)")
    blocks = {"model": model, "parallel": parallel, "train": train}
    text = "".join(f"{name} {{\n  " + "\n  ".join(each) + "\n}\n" for name, each in blocks.items())
    cluster = f'cluster {{ nodes = 1, node from "dgx-h100" {{ gpus = {tp * cp * pp * dp} }} }}\n'
    return text + cluster + 'data { path = "x", format = text }\n'
