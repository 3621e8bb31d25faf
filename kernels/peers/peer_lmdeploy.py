"""LMDeploy's kernels in Triton (lmdeploy.pytorch.kernels.cuda), without what else the import of lmdeploy needs."""
import enum

import alone
import attnbench as ab
import torch

import call_views

_CUDA = "lmdeploy.pytorch.kernels.cuda."
paged, flash, fill, flatten = alone.files(
    "pip install lmdeploy", *(_CUDA + name for name in ("pagedattention", "flashattention", "fill_kv_cache", "flatten_kv_cache")),
    also=(_CUDA + "utils",),
    QuantPolicy=enum.IntEnum("QuantPolicy", {"NONE": 0, "INT4": 4, "INT8": 8, "FP8": 16, "FP8_E5M2": 17, "TURBO_QUANT": 42}))

# The source: P is rounded to the type of V, tl.dot multiplies fp32 as TF32, and P = 0 is multiplied by rows of V that must not
# be read, in the last page and left of a window.
_SERVED = {"device": alone.DEVICE, "p": "input", "acc_input": "tf32", "lse": "none", "padding": "finite", "returns": True}
_ALSO = "causal window softcap alibi sinks head_dim_v bf16 fp16 fp32"


def _options(c):
    call_views.refuse_empty(c)
    (left, _), (slopes, sinks) = call_views.left_window(c), c.torch("alibi_slopes sinks")
    if slopes is not None and (slopes.dim() == 2 or c.alibi_sqrt):
        raise ab.Unsupported("ALiBi of the distance, per head, required")
    return {"softmax_scale": c.softmax_scale, "window_size": left, "softcap": c.softcap or None, "alibi_slopes": slopes, "sinks": sinks}


@ab.attention(f"paged hnd v_is_k_view {_ALSO}", head_dim=range(16, 577), block_size=(16, 32, 64, 128), serves="decode", **_SERVED)
def lmdeploy_paged_decode(c):
    """LMDeploy: flash_attn_with_kvcache, one query per sequence"""
    options, (q, k, v, used), table = _options(c), c.torch("q k v seqused_k"), call_views.block_table(c)
    return lambda: paged.flash_attn_with_kvcache(q, k, v, used, table, kv_layout="bhsd" if c.has("hnd") else "bshd", **options)


@ab.attention(f"packed {_ALSO}", head_dim=range(16, 577), serves="append", **_SERVED)
def lmdeploy_prefill(c):
    """LMDeploy: flash_attn_varlen_func, of a flattened cache"""
    options, (q, k, v, cu_q, cu_k) = _options(c), c.torch("q k v cu_seqlens_q cu_seqlens_k")
    return lambda: flash.flash_attn_varlen_func(q, k, v, cu_q, cu_k, c.max_seqlen_q, causal=bool(c.causal), kv_layout="shd", **options)


@ab.kv_append("paged hnd head_dim_v bf16 fp16 fp32", device=alone.DEVICE)
def lmdeploy_fill(c):
    """LMDeploy: fill_kv_cache, one token per sequence, as in decoding"""
    (key, value, k, v, slots), n = c.torch("key value k_cache v_cache slot_mapping"), c.block_size
    starts, ones = torch.arange(c.num_tokens, device=key.device), torch.ones(c.num_tokens, dtype=torch.int64, device=key.device)

    def launch():
        lengths = torch.where(slots < 0, 0, slots % n + 1)  # a sequence that ends in the token's row of its first block
        fill.fill_kv_cache(key, value, k, v, starts, ones, lengths, 1, (slots // n)[:, None], kv_layout="bhsd" if c.has("hnd") else "bshd")
    return launch


@ab.kv_move("paged hnd gather head_dim_v bf16 fp16 fp32", device=alone.DEVICE)
def lmdeploy_flatten(c):
    """LMDeploy: flatten_kv_cache; its output is copied to its place"""
    (k, v, k_dst, v_dst, table, cu) = c.torch("k_src v_src k_dst v_dst block_table cu_seqlens")
    if not c.total_k or c.seq_starts is not None:
        raise ab.Unsupported("a key, and sequences from their first key, required")

    def launch():
        for to, x in zip((k_dst, v_dst), flatten.flatten_kv_cache(k, v, cu.diff(), table, cu[:-1], c.total_k, flatten_kv_layout="shd",
                                                                  kv_layout="bhsd" if c.has("hnd") else "bshd")):
            to.copy_(x)
    return launch
