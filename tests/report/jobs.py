"""Jobs from a hat: layouts of every kind that a page shows, legal or not."""

from __future__ import annotations

from random import Random


def job(random: Random) -> str:
    """One small job; most of them hold."""
    pick = random.choice
    tp, pp, cp = pick((1, 2, 4, 8)), pick((1, 1, 2, 4)), pick((1, 1, 1, 2))
    moe = random.random() < 0.3
    schedules = ["gpipe", "one_f_one_b", "zero_bubble", "interleaved(chunks = 2)", "zbv"]
    schedules += ["dualpipe_v", "dualpipe"]
    node = pick(('"dgx-h100"', '"dgx-a100"', '"laptop"'))
    experts = "experts { count = 8, top_k = 2, ffn = 1024 }" if moe else ""
    nodes = pick((1, 2, 4, 16, 128))
    heads = pick((8, 32))
    train = (
        f"train {{ seq = {pick((512, 2048))}, micro_batch = {pick((1, 2))}, "
        f"global_batch = {pick((256, 2048))}, precision = {pick(('bf16', 'fp32'))}, "
        f"recompute = {pick(('none', 'full', 'selective'))}, "
        f"{pick(('steps = 100', 'tokens = 1T'))} }}"
    )
    return "\n".join(
        (
            f"model m {{ layers = 16, hidden = {heads * 64}, heads = {heads}, kv_heads = 8, ",
            f"  ffn = 2816, vocab = 32000, rope(theta = 10000) {experts} }}",
            f"cluster {{ nodes = {nodes}, node from {node} }}",
            f"parallel {{ tp = {tp}, pp = {pp}, cp = {cp}, dp = auto, zero = {pick((0, 1, 3))}",
            f"  schedule = {pick(schedules) if pp > 1 else 'one_f_one_b'}",
            f"  sequence_parallel = {'on' if tp > 1 else 'off'}, ep = {pick((1, 2)) if moe else 1}",
            f"  order = [{pick(('tp, cp, pp, dp', 'tp, cp, dp, pp', 'tp, cp, dp, pp'))}] }}",
            train,
            pick(("", 'phase "long" { train { seq = 1024 } }')),
            "",
        )
    )
