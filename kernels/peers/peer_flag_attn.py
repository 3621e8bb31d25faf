"""FlagAttention (flag_attn): flash attention, its split of the keys, and paged decode, in Triton."""
import alone
import attnbench as ab
import torch

import call_views

flash, split, paged = alone.files("pip install git+https://github.com/FlagOpen/FlagAttention",
                                  "flag_attn.flash", "flag_attn.split_kv", "flag_attn.paged", also=("flag_attn.total", "flag_attn.dropout"))

# The source: P is rounded to the type of V, tl.dot multiplies fp32 as TF32, LSE (batch, heads, length) in natural logarithm.
_COMMON = {"device": alone.DEVICE, "p": "input", "acc_input": "tf32", "returns": True}
_DIMS = (16, 32, 64, 128)


@ab.attention("packed causal bf16 fp16", head_dim=_DIMS, serves="append", lengths="host", **_COMMON)
def flag_attn_flash(c):
    """FlagAttention: flash_attention, which splits the keys where its rule says so"""
    q, k, v = (x.transpose(1, 2) for x in call_views.one_length(c))

    def launch():
        out, lse, *_ = flash.attention(q, k, v, bool(c.causal), c.softmax_scale, return_log_normalizer=True)
        return call_views.rows(out.transpose(1, 2)), call_views.rows_of_lse(lse)
    return launch


@ab.attention("packed causal bf16 fp16", head_dim=_DIMS, serves="append", lengths="host", lse="none", **_COMMON)
def flag_attn_split_kv(c):
    """FlagAttention: flash_attention_split_kv"""
    q, k, v = (x.transpose(1, 2) for x in call_views.one_length(c))
    return lambda: call_views.rows(split.attention(q, k, v, bool(c.causal), c.softmax_scale).transpose(1, 2))


_PAGED = _COMMON | {"head_dim": (*_DIMS, 256), "block_size": (16, 32, 64, 128), "serves": "decode", "lse": "none"}


def _paged(c, mha):
    if (c.num_heads_q == c.num_heads_kv) != mha:
        raise ab.Unsupported("flag_attn_paged_mha is the kernel for one query head per KV head, flag_attn_paged for several")
    (q, used, table), (k, v) = c.torch("q seqused_k block_table"), (x if c.has("hnd") else x.transpose(1, 2) for x in c.torch("k v"))
    if k.stride() != v.stride():
        raise ab.Unsupported("K and V of the same strides required")
    return lambda: paged.attention(q, k, v, used, table, c.softmax_scale, c.max_seqlen_k)


@ab.attention("paged hnd causal bf16 fp16", **_PAGED)
def flag_attn_paged(c):
    """FlagAttention: paged_attention, several query heads per KV head"""
    return _paged(c, False)


# The source multiplies in fp32 where a KV head has one query head.
@ab.attention("paged hnd causal bf16 fp16", **_PAGED | {"p": "fp32", "acc_input": "fp32"})
def flag_attn_paged_mha(c):
    """FlagAttention: paged_attention, one query head per KV head"""
    return _paged(c, True)
