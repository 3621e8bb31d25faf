"""FlashAttention 4 (flash-attn-4): flash_attn.cute.flash_attn_varlen_func, in CuTe DSL, compiled in the first launch."""
import inspect

import attnbench as ab

cute = ab.need("flash_attn.cute", "pip install --pre flash-attn-4")

import call_views

_KNOWN = inspect.signature(cute.flash_attn_varlen_func).parameters
_FEATURES = "packed paged seqused_k causal window sinks bf16 fp16"
# cute interface: head_dim up to 256 on sm_90, up to 128 or 256 on sm_100; LSE in natural logarithm, -inf for a row
# without keys. On sm_100 a part of the exponentials is a polynomial of degree 3, with a relative error of 2^-13.5
# (cute utils, POLY_EX2). TMA reads whole tiles of V, so P = 0 meets rows past the last key.
_COMMON = {"head_dim": range(8, 257, 8), "p": "input", "returns": True, "padding": "finite", "min_compute_capability": 80}


def _attend(c):
    call_views.refuse_empty(c)
    if 100 <= c.compute_capability < 120 and 128 < c.head_dim < 256:
        raise ab.Unsupported(f"head_dim 8..128 or 256 required on this GPU, given {c.head_dim}")
    if c.sinks is not None:
        call_views.refuse_blind_queries(c, "its LSE beside a sink is not documented")
    q, k, v, cu_q, cu_k = c.torch("q k v cu_seqlens_q cu_seqlens_k")
    used, block_table, sinks = c.torch("seqused_k"), call_views.block_table(c), c.torch("sinks")
    left, right = (None if n < 0 else n for n in call_views.window(c))
    more = {"max_seqlen_q": c.max_seqlen_q, "max_seqlen_k": c.max_seqlen_k, "return_lse": True}
    if "return_lse" not in _KNOWN:
        raise ab.Unsupported("return_lse is missing: pip install --upgrade --pre flash-attn-4")
    return lambda: cute.flash_attn_varlen_func(
        q, k, v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, seqused_k=used, page_table=block_table, softmax_scale=c.softmax_scale,
        causal=bool(c.causal), window_size=(left, None if c.causal else right), learnable_sink=sinks, softcap=c.softcap, **more)[:2]


@ab.attention(_FEATURES, exp_rel_err=2**-13, **_COMMON)
def flash_attn_4(c):
    """FlashAttention 4: flash_attn.cute.flash_attn_varlen_func"""
    return _attend(c)


# cute utils: tanh with fastmath is tanh.approx, with a relative error of 2^-11 (PTX ISA).
@ab.attention(_FEATURES + " softcap", exp_rel_err=2**-11, **_COMMON)
def flash_attn_4_softcap(c):
    """FlashAttention 4 with a softcap, whose tanh is approximate"""
    call_views.require_softcap(c, "flash_attn_4")
    return _attend(c)
