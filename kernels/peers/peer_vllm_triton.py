"""vLLM's kernels in Triton (vllm.v1.attention.ops), without vLLM's compiled extension and what else its import needs."""
import enum

import alone
import attnbench as ab
import torch
import triton

import call_views

_OPS = "vllm.v1.attention.ops.triton_"
_CUDA = alone.Nothing(fp8_dtype=lambda: torch.float8_e4m3fn, **{name: lambda *_: True for name in ("is_cuda", "is_cuda_alike",
                                                                                                   "has_device_capability")})
_MODES = "NONE FP8_PER_TENSOR INT8_PER_TOKEN_HEAD FP8_PER_TOKEN_HEAD INT4_PER_TOKEN_HEAD"
unified, diffkv, decode, prefill, prefix, merge, cache = alone.files(
    "pip install vllm", *(_OPS + name for name in ("unified_attention", "unified_attention_diffkv", "decode_attention", "prefill_attention")),
    "vllm.v1.attention.ops.prefix_prefill", *(_OPS + name for name in ("merge_attn_states", "reshape_and_cache_flash")),
    also=(_OPS + "attention_helpers", "vllm.utils.math_utils"), triton=triton, tl=triton.language, current_platform=_CUDA,
    KVQuantMode=enum.IntEnum("KVQuantMode", _MODES, start=0), is_quantized_kv_cache=lambda name: name.startswith("fp8"),
    get_fp8_min_max=lambda: (-448.0, 448.0), FP8_DTYPE=torch.float8_e4m3fn)

# The source: P is rounded to the type of V, and tl.dot multiplies fp32 as TF32. Engines write the keys of queries before the
# launch, schedule no sequence without queries, and give rows of a freed block to block 0 (call_views.block_table).
_SERVED = {"device": alone.DEVICE, "p": "input", "acc_input": "tf32", "lse": "none", "serves": "append", "returns": True}
_PAGED = "paged hnd causal window softcap alibi sinks bf16 fp16 fp32"


def _caches(c, names="k v"):
    """K and V as (blocks, rows, heads, channels), views."""
    return (x.transpose(1, 2) if c.has("hnd") else x for x in c.torch(names))


def _unified(c, function, **more):
    call_views.refuse_empty(c)
    call_views.refuse_lead_rows(c)
    (left, causal), (k, v), table = call_views.left_window(c, 0), _caches(c), call_views.block_table(c)
    q, cu_q, used, slopes, sinks = c.torch("q cu_seqlens_q seqused_k alibi_slopes sinks")
    if slopes is not None and slopes.dim() == 2:
        raise ab.Unsupported("ALiBi slopes per head only")
    out = torch.empty_like(c.torch("out"))

    def launch():
        function(q=q, k=k, v=v, out=out, cu_seqlens_q=cu_q, max_seqlen_q=c.max_seqlen_q, seqused_k=used, softmax_scale=c.softmax_scale,
                 causal=causal, window_size=(left, 0), block_table=table, softcap=c.softcap, alibi_slopes=slopes,
                 use_alibi_sqrt=bool(c.alibi_sqrt), sinks=sinks, q_descale=None, k_descale=None, v_descale=None, **more)
        return out
    return launch


@ab.attention(_PAGED, head_dim=range(1, 257), **_SERVED)
def vllm_unified_2d(c):
    """vLLM: unified_attention, one program for all keys of a tile of queries"""
    return _unified(c, unified.unified_attention, max_seqlen_k=c.max_seqlen_k)


def _segments(c, channels):
    """Space for 16 segments of the keys, as TritonAttentionBackend has them."""
    shape, new = (c.total_q, c.num_heads_q, 16), c.torch("lse").new_empty
    return {"seq_threshold_3D": 1 << 30, "num_par_softmax_segments": 16, "softmax_segm_max": new(shape),
            "softmax_segm_output": new((*shape, triton.next_power_of_2(channels))), "softmax_segm_expsum": new(shape)}


@ab.attention(_PAGED, head_dim=range(1, 257), **_SERVED)
def vllm_unified_3d(c):
    """vLLM: unified_attention, the keys cut into 16 segments, as for few sequences with up to 8 queries"""
    if c.max_seqlen_q > 8 or (c.max_seqlen_q > 1 and not call_views.left_window(c, 0)[1]):
        raise ab.Unsupported("at most 8 queries per sequence, and a causal mask unless there is one, required")
    return _unified(c, unified.unified_attention, max_seqlen_k=c.max_seqlen_k, **_segments(c, c.head_dim))


@ab.attention(_PAGED + " head_dim_v", head_dim=range(1, 257), **_SERVED)
def vllm_unified_diffkv(c):
    """vLLM: unified_attention_diffkv, K and V of different head_dim"""
    if not call_views.left_window(c, 0)[1]:
        raise ab.Unsupported("a causal mask required")
    return _unified(c, diffkv.unified_attention_diffkv, **_segments(c, c.head_dim_v))


def _decode(c, mla=False):
    call_views.refuse_empty(c)
    if call_views.window(c)[0] >= 0:
        raise ab.Unsupported("no window")
    (k, v), (q, used, table) = _caches(c), c.torch("q seqused_k block_table")
    out, lse = torch.empty_like(c.torch("out")), torch.empty(c.total_q, c.num_heads_q, device=q.device)
    partial, one = q.new_empty((c.batch, c.num_heads_q, 8, c.head_dim_v + 1), dtype=torch.float32), torch.ones((), device=q.device)

    def launch():
        decode.decode_attention_fwd(q, k, v, out, lse, table, used, partial, 8, c.softmax_scale, c.block_size, c.softcap, one, one, is_mla=mla)
        return out, lse
    return launch


_DECODE = _SERVED | {"lse": "token_major", "serves": "decode"}


# The source multiplies in fp32 where a KV head has one query head.
@ab.attention("paged causal softcap bf16 fp16 fp32", head_dim=range(1, 257), **_DECODE | {"p": "fp32", "acc_input": "fp32"})
def vllm_decode_mha(c):
    """vLLM: decode_attention_fwd, one query head per KV head"""
    if c.num_heads_q != c.num_heads_kv:
        raise ab.Unsupported("vllm_decode_grouped is the kernel for several query heads per KV head")
    return _decode(c)


@ab.attention("paged causal softcap head_dim_v bf16 fp16 fp32", head_dim=range(16, 257), **_DECODE)
def vllm_decode_grouped(c):
    """vLLM: decode_attention_fwd, several query heads per KV head"""
    if c.num_heads_q == c.num_heads_kv:
        raise ab.Unsupported("vllm_decode_mha is the kernel for one query head per KV head")
    return _decode(c)


@ab.attention("paged causal head_dim_v v_is_k_view bf16 fp16", head_dim=576, **_DECODE)
def vllm_decode_mla(c):
    """vLLM: decode_attention_fwd with is_mla, V as a view of K"""
    if c.num_heads_kv != 1 or not c.has("v_is_k_view") or c.head_dim_v != 512 or c.num_heads_q == 1:
        raise ab.Unsupported("one KV head, several query heads, and V as the first 512 channels of K, required")
    return _decode(c, mla=True)


@ab.attention("packed causal window sinks bf16 fp16 fp32", head_dim=range(1, 257), **_SERVED | {"serves": "prefill", "lengths": "host"})
def vllm_prefill(c):
    """vLLM: context_attention_fwd of triton_prefill_attention, without a cache"""
    call_views.refuse_empty(c)
    (left, right), (q, k, v, cu, sinks), out = call_views.window(c), c.torch("q k v cu_seqlens_q sinks"), torch.empty_like(c.torch("out"))
    if left == 0 or (right == 0 and not c.causal):
        raise ab.Unsupported("a window of more than 0 keys required")
    call_views.require_one_cu(c)

    def launch():
        prefill.context_attention_fwd(q, k, v, out, cu[:-1], cu.diff(), c.max_seqlen_q, bool(c.causal), c.softmax_scale, max(0, left),
                                      max(0, right), sinks)
        return out
    return launch


def _prefix(c, slopes=None, sinks=None):
    """Keys at the positions of queries come packed, as the layer computed them; older ones from the cache, 8 or 4 channels a piece."""
    call_views.refuse_empty(c)
    call_views.refuse_lead_rows(c)
    (left, causal), (cache_k, cache_v), one = call_views.left_window(c, 0), _caches(c), torch.ones((), device=c.torch("q").device)
    q, cu, used, x = *c.torch("q cu_seqlens_q seqused_k"), 16 // c.torch("q").element_size()
    if c.head_dim % x:
        raise ab.Unsupported(f"head_dim of a multiple of {x} required")
    (k, v), new = call_views.pool(c), call_views.new_keys(c)[0]
    cache_k, cache_v = cache_k.unflatten(-1, (-1, x)).permute(0, 2, 3, 1, 4), cache_v.permute(0, 2, 3, 1)
    out, table = torch.empty_like(c.torch("out")), call_views.block_table(c)

    def launch():
        prefix.context_attention_fwd(q, k[new], v[new], out, "auto", cache_k, cache_v, table, cu, used, c.max_seqlen_k, c.max_seqlen_q, one, one,
                                     slopes, left + 1, c.softmax_scale, sinks=sinks, causal=causal)
        return out
    return launch


_PREFIX = _SERVED | {"lengths": "host", "head_dim": range(16, 257)}


@ab.attention("paged causal window sinks bf16 fp16 fp32", **_PREFIX)
def vllm_prefix_prefill(c):
    """vLLM: context_attention_fwd of prefix_prefill, cached keys and new ones"""
    return _prefix(c, sinks=c.torch("sinks"))


@ab.attention("paged causal alibi bf16 fp16 fp32", **_PREFIX)
def vllm_prefix_prefill_alibi(c):
    """vLLM: context_attention_fwd of prefix_prefill with ALiBi"""
    slopes = c.torch("alibi_slopes")
    if slopes is None or slopes.dim() == 2 or c.alibi_sqrt or not c.causal:
        raise ab.Unsupported("ALiBi of the distance, per head, under a causal mask, required")
    return _prefix(c, slopes)


@ab.merge_states("bf16 fp16 fp32 inf_lse e4m3_out", device=alone.DEVICE, padding="finite")
def vllm_merge(c):
    """vLLM: merge_attn_states in Triton, of two states"""
    partial, lse, out, out_lse, scale = c.torch("partial_out partial_lse out out_lse out_scale")
    if c.num_states != 2 or any(x.stride(-3) != c.num_heads * x.stride(-2) for x in (partial, out)):
        raise ab.Unsupported("two states, and rows of O without gaps between them, required")
    out, lse = (out.view(torch.float8_e4m3fn) if scale is not None else out), lse.transpose(1, 2)
    return lambda: merge.merge_attn_states(out, partial[0], lse[0], partial[1], lse[1], out_lse, None, scale)


@ab.kv_append("paged hnd bf16 fp16 fp32 e4m3_kv", device=alone.DEVICE)
def vllm_reshape_and_cache(c):
    """vLLM: triton_reshape_and_cache_flash"""
    key, value, slots, k_scale, v_scale = c.torch("key value slot_mapping k_scale v_scale")
    k, v = _caches(c, "k_cache v_cache")
    if c.head_dim_v != c.head_dim or k.stride() != v.stride() or any(x.stride(1) != c.head_dim for x in (key, value)):
        raise ab.Unsupported("K and V of the same head_dim and strides, and heads without gaps, required")
    if any(s is not None and s.unique().numel() > 1 for s in (k_scale, v_scale)):
        raise ab.Unsupported("one scale for K and one for V required")
    kind = "auto" if k_scale is None else "fp8"
    return lambda: cache.triton_reshape_and_cache_flash(key, value, k, v, slots, kind, k_scale, v_scale)
