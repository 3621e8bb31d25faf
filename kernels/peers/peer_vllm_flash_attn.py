"""vLLM: vllm.vllm_flash_attn.flash_attn_varlen_func, its build of FlashAttention 3 where that runs, else of 2."""
import attnbench as ab

flash = ab.need("vllm.vllm_flash_attn", "pip install vllm")

import call_views

# Sinks (s_aux) are left out: they must be bf16 (hopper flash_api of vllm-project/flash-attention), and the contract's
# are float32. Pages are a multiple of 16 rows there. Other claims as for FlashAttention 2 and 3.
_COMMON = {"block_size": range(16, 4097, 16), "returns": True, "padding": "finite", "min_compute_capability": 80}


def _attend(c, version, **more):
    call_views.refuse_empty(c)
    if version == 2:
        call_views.refuse_blind_queries(c, "FlashAttention 2's LSE of it is +inf")
        if c.alibi_sqrt:
            raise ab.Unsupported("ALiBi of the distance only, not of its square root")
    elif c.has("alibi"):
        raise ab.Unsupported("no ALiBi in FlashAttention 3")
    elif c.has("packed") and c.total_k == 0:
        raise ab.Unsupported("no keys at all: the LSE is +inf then")
    q, k, v, cu_q, cu_k = c.torch("q k v cu_seqlens_q cu_seqlens_k")
    used, block_table, slopes = c.torch("seqused_k"), call_views.block_table(c), c.torch("alibi_slopes")
    if cu_k is not None and used is not None:
        raise ab.Unsupported("cu_seqlens_k and seqused_k in one call")
    # With max_seqlen_q = 1 and grouped heads FlashAttention 2 takes q as (batch, heads): each sequence must have its query.
    max_q = c.max_seqlen_q if version == 3 or c.total_q == c.batch else max(2, c.max_seqlen_q)
    window = call_views.window_of_flash_2(c)  # as it is in version 3, which has no ALiBi
    return lambda: flash.flash_attn_varlen_func(
        q, k, v, max_seqlen_q=max_q, cu_seqlens_q=cu_q, max_seqlen_k=c.max_seqlen_k, cu_seqlens_k=cu_k, seqused_k=used,
        softmax_scale=c.softmax_scale, causal=bool(c.causal), window_size=list(window), softcap=c.softcap,
        alibi_slopes=slopes, block_table=block_table, return_softmax_lse=True, fa_version=version, **more)


def _newest():
    return 3 if flash.is_fa_version_supported(3) else 2


@ab.attention("packed paged causal window alibi bf16 fp16", head_dim=range(8, 257, 8), p="input", **_COMMON)
def vllm_flash_attn(c):
    """vLLM's flash_attn_varlen_func"""
    return _attend(c, _newest())


@ab.attention("packed paged causal window softcap bf16 fp16", head_dim=range(8, 257, 8), p="input", exp_rel_err=2**-11, **_COMMON)
def vllm_flash_attn_softcap(c):
    """vLLM's flash_attn_varlen_func with a softcap, whose tanh is approximate"""
    call_views.require_softcap(c, "vllm_flash_attn")
    return _attend(c, _newest())


# P is e4m3 too, and Hopper's FP8 matrix units add with about 14 bits (DeepSeek-V3 report, section 3.3.2).
@ab.attention("packed paged causal e4m3_q e4m3_kv bf16", head_dim=range(16, 257, 16), p="e4m3", acc="fp16",
              **_COMMON | {"min_compute_capability": 90})
def vllm_flash_attn_fp8(c):
    """vLLM's flash_attn_varlen_func in FP8"""
    if _newest() != 3 or str(c.dtype_q) != "e4m3" or str(c.dtype_k) != "e4m3":
        raise ab.Unsupported("FlashAttention 3, and q, K and V in e4m3 required")
    q_descale, k_descale, v_descale = c.torch("q_descale k_descale v_descale")
    return _attend(c, 3, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
