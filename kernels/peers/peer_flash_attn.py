"""FlashAttention 2 (flash-attn): flash_attn_varlen_func and flash_attn_with_kvcache.

Rotary embedding is left out: its tables must have the type of q, and rounding them to 16 bits is an error of 2^-9 that
the contract's float32 tables do not have (flash_api: "rotary_cos must have the same dtype as query").
"""
import attnbench as ab

flash = ab.need("flash_attn.flash_attn_interface", "pip install flash-attn")
import torch

import call_views

# flash_api: head_dim up to 256 (others than multiples of 8 are padded by a copy), pages of a multiple of 256 rows.
_LIMITS = {"head_dim": range(8, 257, 8), "block_size": range(256, 4097, 256), "min_compute_capability": 80}
# softmax: exp2f with -use_fast_math is ex2.approx, P is converted to the type of V. flash_fwd_kernel clears rows of
# V past the last key, but a window multiplies P = 0 by rows of V that are left of it.
# README: O of a row without keys is 0; mha_varlen_fwd: its LSE is +inf.
_NUMBERS = {"p": "input", "returns": True, "lse": "plus_inf", "padding": "finite"}


def _refuse(c):
    call_views.refuse_empty(c)
    if c.alibi_sqrt:
        raise ab.Unsupported("ALiBi of the distance only, not of its square root")


def _varlen(c):
    """The function below flash_attn_varlen_func, because that one has no seqused_k."""
    _refuse(c)
    q, k, v, cu_q, cu_k = c.torch("q k v cu_seqlens_q cu_seqlens_k")
    used, block_table, slopes = c.torch("seqused_k block_table alibi_slopes")
    if cu_k is None:  # not read: rows are found by block_table, and lengths are seqused_k (block_info)
        cu_k = torch.zeros_like(cu_q)
    # With max_seqlen_q = 1 and grouped heads q is taken as (batch, heads): each sequence must have its query.
    max_q = c.max_seqlen_q if c.total_q == c.batch else max(2, c.max_seqlen_q)
    left, right = call_views.window_of_flash_2(c)

    def launch():
        return flash._flash_attn_varlen_forward(
            q, k, v, cu_q, cu_k, max_q, c.max_seqlen_k, 0.0, c.softmax_scale, causal=bool(c.causal), window_size_left=left,
            window_size_right=right, softcap=c.softcap, alibi_slopes=slopes, block_table=block_table, seqused_k=used)[:2]
    return launch


@ab.attention("packed paged seqused_k causal window alibi bf16 fp16", **_LIMITS, **_NUMBERS)
def flash_attn(c):
    """FlashAttention 2: flash_attn_varlen_func"""
    return _varlen(c)


# cutlass::fast_tanh is tanh.approx, with a relative error of 2^-11 (PTX ISA).
@ab.attention("packed paged seqused_k causal window alibi softcap bf16 fp16", **_LIMITS, **_NUMBERS, exp_rel_err=2**-11)
def flash_attn_softcap(c):
    """FlashAttention 2 with a softcap, whose tanh is approximate"""
    call_views.require_softcap(c, "flash_attn")
    return _varlen(c)


@ab.attention("paged contiguous append causal window alibi bf16 fp16", **_LIMITS, **_NUMBERS, lengths="host")
def flash_attn_kvcache(c):
    """FlashAttention 2: flash_attn_with_kvcache, which may cut the keys and append"""
    _refuse(c)
    call_views.refuse_left_padding(c)
    q, (k, v, used, block_table, index, slopes) = call_views.queries(c), c.torch(
        "k v seqused_k block_table cache_batch_idx alibi_slopes")
    new = {}
    if c.has("append"):  # cache_seqlens is without the new keys
        n = call_views.same(call_views.new_lengths(c), "new keys")
        first = int(c.torch("cu_seqlens_new")[0])
        new = {x: c.torch(f"{x}_new")[first:].unflatten(0, (c.batch, n)) for x in ("k", "v")}
        used = used - n

    def launch():
        out, lse = flash.flash_attn_with_kvcache(
            q, k, v, **new, cache_seqlens=used, cache_batch_idx=index, block_table=block_table, softmax_scale=c.softmax_scale,
            causal=bool(c.causal), window_size=call_views.window_of_flash_2(c), alibi_slopes=slopes, return_softmax_lse=True)
        return call_views.rows(out), call_views.rows_of_lse(lse)
    return launch
