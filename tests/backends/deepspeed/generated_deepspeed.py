"""Whole `.par` files over every field that the target deepspeed emits."""

from __future__ import annotations

from random import Random

PATHS = 'offload_optimizer_nvme_path = "/local", offload_param_nvme_path = "/local"'


def job(random: Random) -> str:
    """A file of a dense decoder over dp and pp; it may be legal or not."""
    pick = random.choice
    pp, dp = pick((1, 1, 2, 3, 4)), pick((1, 2, 4))
    zero = pick((0, 1, 1)) if pp > 1 else pick((0, 1, 2, 3, 3))
    cp = pick((1, 1, 2)) if pp == 1 else 1
    parallel = _parallel(random, pp=pp, zero=zero)
    parallel += f", cp = {cp}, cp_method = ulysses" if cp > 1 else ""
    gpus = pp * cp * dp
    options = PATHS if "nvme(optimizer, params)" in parallel else "wall_clock_breakdown = on"
    return (
        _model(random)
        + f'cluster {{ nodes = {pick((1, 2))}, node from "dgx-h100" {{ gpus = {gpus} }} }}\n'
        + f"parallel {{ {parallel} }}\n"
        + _train(random)
        + pick(
            (
                "",
                "data { path = \"a 'path'/$HOME\", format = megatron }\n",
                'data { path = "tokens \\"quoted\\".bin", format = tokens }\n',
            )
        )
        + pick(("", 'checkpoint { path = "it\'s $(here)", every = 100, keep = 3 }\n'))
        + pick(("", "log { every = 10, tensorboard = on }\n"))
        + pick(("", f'target "deepspeed" {{ options {{ {options} }} }}\n'))
    )


def _model(random: Random) -> str:
    pick, heads = random.choice, random.choice((4, 8))
    tied = pick(("on", "off"))
    fields = [
        f"layers = {pick((4, 7, 12))}, hidden = {heads * 16}, heads = {heads}",
        f"kv_heads = {pick((heads, 2))}, ffn = {pick((128, 344))}, vocab = {pick((257, 512))}",
        f"activation = {pick(('swiglu', 'geglu', 'gelu', 'relu2'))}, context = 4096",
        f"norm = {pick(('rmsnorm', 'layernorm'))}, qk_norm = {pick(('none', 'per_head', 'full'))}",
        f"norm_placement = {pick(('before', 'after', 'both'))}, tied_embeddings = {tied}",
        f"bias = {pick(('none', 'qkv', 'all', '[qkv, head]'))}",
        f"embedding_norm = {pick(('on', 'off'))}, final_norm = {pick(('on', 'on', 'off'))}",
        pick(("rope(theta = 500000)", "rope(theta = 10000, partial = 0.5)", "position = learned")),
        pick(("", "softcap(logits = 30)", "parallel_blocks = on, shared_norm = on")),
    ]
    return "model {\n  " + "\n  ".join(field for field in fields if field) + "\n}\n"


def _parallel(random: Random, *, pp: int, zero: int) -> str:
    pick = random.choice
    fields = [f"pp = {pp}, zero = {zero}, vocab_multiple = {pick((1, 64))}"]
    if pp > 1:
        fields += [f"order = [{pick(('dp, pp', 'pp, dp'))}]", *pick(((), ("stages = auto",)))]
    if random.random() < 0.3:
        fields.append(f"overlap = {pick(('on', 'off'))}")
    if zero and random.random() < 0.2:
        where = pick(("cpu", "cpu", "nvme"))
        fields.append(f"offload = {where}({pick(('optimizer', 'optimizer, params'))})")
    return ", ".join(fields)


def _train(random: Random) -> str:
    pick = random.choice
    schedules = (
        "constant(warmup = 10)",
        "cosine(warmup = 100, min_lr = 1e-5)",
        "linear(min_lr = 0)",
        "wsd(warmup = 10, decay = 50, min_lr = 1e-6)",
    )
    again = ("none", "full", "full(first = 1)", "full(every = 2)", "selective(mlp)")
    fields = [
        f"seq = {pick((128, 1024))}, micro_batch = {pick((1, 2))}, global_batch = {pick((32, 96))}",
        f"precision = {pick(('bf16', 'bf16', 'bf16', 'fp16', 'fp32'))}",
        pick(("steps = 1000", "tokens = 1B")),
        f"clip = {pick(('1.0', '0', '0.5'))}, seed = {pick((0, 1234))}",
        f"optimizer = adamw(lr = {pick(('3e-4', '0.00012'))}, eps = 1e-7, weight_decay = 0.05)",
        f"lr_schedule = {pick(schedules)}, recompute = {pick(again)}",
    ]
    if random.random() < 0.3:
        fields.append("gradients = bf16")
    if random.random() < 0.2:
        fields.append("attention = math")
    return "train {\n  " + "\n  ".join(fields) + "\n}\n"
