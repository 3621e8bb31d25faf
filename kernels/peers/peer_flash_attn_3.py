"""FlashAttention 3 (flash_attn_interface, the folder hopper/ of flash-attention).

Rotary embedding is left out: its tables must have the type of q, and rounding them to 16 bits is an error of 2^-9 that
the contract's float32 tables do not have (hopper flash_api).
"""
import attnbench as ab

flash = ab.need("flash_attn_interface", "pip install git+https://github.com/Dao-AILab/flash-attention#subdirectory=hopper")

import call_views

try:  # what the build left out (hopper setup); older ones do not tell
    from flash_attn_config import CONFIG
except ImportError:
    CONFIG = {"build_flags": {}}
_LEFT_OUT = {name.split("DISABLE_")[-1] for name, off in CONFIG["build_flags"].items() if off}
# hopper flash_api: head_dim a multiple of 16 bytes up to 256, pages of any size. hopper softmax: ex2.approx, LSE in
# natural logarithm and -inf for a row without keys. TMA reads whole tiles of V, so P = 0 meets rows past the last key.
_COMMON = {"returns": True, "padding": "finite", "min_compute_capability": 80}
_KV = "packed paged contiguous seqused_k causal"


def _require_built(part):
    if part in _LEFT_OUT:
        raise ab.Unsupported(f"a build of flash_attn_3 with {part} required")


def _attend(c, **more):
    call_views.refuse_empty(c)
    q, k, v, cu_q, cu_k, used = c.torch("q k v cu_seqlens_q cu_seqlens_k seqused_k")
    if c.has("packed"):
        if c.total_k == 0:
            raise ab.Unsupported("no keys at all: flash_attn_interface's LSE is +inf then")
        return lambda: flash.flash_attn_varlen_func(
            q, k, v, cu_q, cu_k, c.max_seqlen_q, c.max_seqlen_k, seqused_k=used, softmax_scale=c.softmax_scale,
            causal=bool(c.causal), window_size=call_views.window(c), softcap=c.softcap, return_attn_probs=True, **more)[:2]
    call_views.refuse_left_padding(c)
    cu_new = None
    if c.has("append"):  # cache_seqlens is without the new keys
        new_k, new_v, cu_new = c.torch("k_new v_new cu_seqlens_new")
        more |= {"k": new_k, "v": new_v}
        used = used - cu_new.diff()
    block_table, index = call_views.block_table(c), c.torch("cache_batch_idx")
    return lambda: flash.flash_attn_with_kvcache(
        q, k, v, cache_seqlens=used, cache_batch_idx=index, page_table=block_table, cu_seqlens_q=cu_q, cu_seqlens_k_new=cu_new,
        max_seqlen_q=c.max_seqlen_q, softmax_scale=c.softmax_scale, causal=bool(c.causal), window_size=call_views.window(c),
        softcap=c.softcap, return_softmax_lse=True, **more)[:2]


@ab.attention(_KV + " append window head_dim_v bf16 fp16", head_dim=range(8, 257, 8), p="input", **_COMMON)
def flash_attn_3(c):
    """FlashAttention 3: flash_attn_varlen_func and flash_attn_with_kvcache"""
    d, dv = c.head_dim, c.head_dim_v
    if d != dv:
        _require_built("HDIMDIFF64" if d <= 64 else "HDIMDIFF192")
        if c.compute_capability < 90 or not (128 < d <= 192 and 96 < dv <= 128 or d <= 64 and dv <= 512):
            raise ab.Unsupported(f"Hopper, head_dim 136..192 with head_dim_v 104..128, or 8..64 with ..512 required, given {d}, {dv}")
    return _attend(c)


# cutlass::fast_tanh is tanh.approx, with a relative error of 2^-11 (PTX ISA).
@ab.attention(_KV + " window softcap bf16 fp16", head_dim=range(8, 257, 8), p="input", exp_rel_err=2**-11, **_COMMON)
def flash_attn_3_softcap(c):
    """FlashAttention 3 with a softcap, whose tanh is approximate"""
    call_views.require_softcap(c, "flash_attn_3")
    _require_built("SOFTCAP")
    return _attend(c)


# P is converted to e4m3 too. Hopper's FP8 matrix units add with about 14 bits (DeepSeek-V3 report, section 3.3.2), which
# fp16 comes nearest to. Descales are per (sequence, KV head), as in the contract.
@ab.attention(_KV + " e4m3_q e4m3_kv bf16", head_dim=range(16, 257, 16), p="e4m3", acc="fp16",
              **_COMMON | {"min_compute_capability": 90})
def flash_attn_3_fp8(c):
    """FlashAttention 3 in FP8"""
    if str(c.dtype_q) != "e4m3" or str(c.dtype_k) != "e4m3":
        raise ab.Unsupported("q, K and V in e4m3 required")
    q_descale, k_descale, v_descale = c.torch("q_descale k_descale v_descale")
    return _attend(c, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
