"""SGLang's kernels in Triton (sglang.srt.layers.attention.triton_ops), without what else the import of sglang needs."""
import alone
import attnbench as ab
import torch

import call_views

_OPS = "sglang.srt.layers.attention.triton_ops."
decode, extend, prefill, merge = alone.files(
    "pip install sglang", *(_OPS + name for name in ("decode_attention", "extend_attention", "prefill_attention", "merge_state")),
    is_cuda=lambda: False, is_hip=lambda: False)

# The source: P is rounded to the type of V, and tl.dot multiplies fp32 as TF32. Lists of rows in the pool are made before the
# launch, as the engine makes them; it schedules no sequence without queries.
_SERVED = {"device": alone.DEVICE, "p": "input", "acc_input": "tf32", "lse": "none", "lengths": "host", "serves": "append", "returns": True}


def _ask(c):
    """The source asks for the GPU when it is imported, which is before one may be used."""
    call_views.refuse_empty(c)
    for module in (extend, prefill):
        module._is_cuda, module.CUDA_CAPABILITY = True, divmod(c.compute_capability, 10)


def _decode(c):
    call_views.refuse_empty(c)
    (k, v), (rows, first), (q, sinks) = call_views.pool(c), call_views.slots(c), c.torch("q sinks")
    out, splits = torch.empty_like(c.torch("out")), torch.full((c.batch,), 8, dtype=torch.int32, device=q.device)
    partial = q.new_empty((c.batch, c.num_heads_q, 8, c.head_dim_v), dtype=torch.float32)
    lse = q.new_empty(partial.shape[:3], dtype=torch.float32)

    def launch():
        decode.decode_attention_fwd(q, k, v, out, first, rows, partial, lse, splits, 8, c.softmax_scale, 1.0, 1.0, c.softcap, sinks)
        return out
    return launch


_DECODE = _SERVED | {"serves": "decode"}


# The source multiplies in fp32 where a KV head has one query head.
@ab.attention("paged causal softcap sinks bf16 fp16 fp32", head_dim=range(1, 257), **_DECODE | {"p": "fp32", "acc_input": "fp32"})
def sglang_decode_mha(c):
    """SGLang: decode_attention_fwd, one query head per KV head"""
    if c.num_heads_q != c.num_heads_kv:
        raise ab.Unsupported("sglang_decode_grouped is the kernel for several query heads per KV head")
    return _decode(c)


@ab.attention("paged causal softcap sinks head_dim_v v_is_k_view bf16 fp16 fp32", head_dim=range(16, 577), **_DECODE)
def sglang_decode_grouped(c):
    """SGLang: decode_attention_fwd, several query heads per KV head, also MLA"""
    if c.num_heads_q == c.num_heads_kv:
        raise ab.Unsupported("sglang_decode_mha is the kernel for one query head per KV head")
    return _decode(c)


_EXTEND = "paged causal window softcap sinks bf16 fp16 fp32"


@ab.attention(_EXTEND, head_dim=range(16, 257), **_SERVED)
def sglang_extend(c):
    """SGLang: extend_attention_fwd, keys of queries packed, older ones in the cache"""
    _ask(c)
    call_views.refuse_lead_rows(c)
    (left, causal), (k, v), (new, old, older) = call_views.left_window(c), call_views.pool(c), call_views.new_keys(c)
    (q, cu, sinks), out = c.torch("q cu_seqlens_q sinks"), torch.empty_like(c.torch("out"))

    def launch():
        extend.extend_attention_fwd(q, k[new], v[new], out, k, v, cu, older, old, None, causal, None, c.max_seqlen_q, 1.0, 1.0,
                                    c.softmax_scale, c.softcap, sliding_window_size=left, sinks=sinks)
        return out
    return launch


@ab.attention(_EXTEND, head_dim=range(16, 257), **_SERVED)
def sglang_extend_unified(c):
    """SGLang: extend_attention_fwd_unified, all keys in the cache, as for deterministic inference"""
    _ask(c)
    (left, causal), (k, v), (rows, first) = call_views.left_window(c), call_views.pool(c), call_views.slots(c)
    older, (q, cu, sinks), out = call_views.new_keys(c)[2].diff(), c.torch("q cu_seqlens_q sinks"), torch.empty_like(c.torch("out"))

    def launch():
        extend.extend_attention_fwd_unified(q, out, k, v, 1.0, 1.0, cu, first, rows, older, c.max_seqlen_q, sm_scale=c.softmax_scale,
                                            logit_cap=c.softcap, is_causal=causal, sliding_window_size=left, sinks=sinks)
        return out
    return launch


@ab.attention("packed causal bf16 fp16 fp32", head_dim=range(16, 257), **_SERVED | {"serves": "prefill"})
def sglang_prefill(c):
    """SGLang: context_attention_fwd, without a cache"""
    _ask(c)
    call_views.require_scale(c)
    (q, k, v, cu), out = c.torch("q k v cu_seqlens_q"), torch.empty_like(c.torch("out"))
    call_views.require_one_cu(c)

    def launch():
        prefill.context_attention_fwd(q, k, v, out, cu[:-1], cu.diff(), c.max_seqlen_q, bool(c.causal))
        return out
    return launch


@ab.merge_states("bf16 fp16 fp32 inf_lse", device=alone.DEVICE, serves="merge", padding="finite")
def sglang_merge(c):
    """SGLang: merge_state_triton, of two states; tensors have no gaps, and LSEs are by token"""
    if c.num_states != 2 or c.dtype_partial != c.dtype_out:
        raise ab.Unsupported("two states, in the type of O, required")
    partial, lse, out, out_lse = c.torch("partial_out partial_lse out out_lse")

    def launch():
        merged, lse_of_it = merge.merge_state_triton(*(x[n].contiguous() for n in (0, 1) for x in (partial, lse)))
        out.copy_(merged)
        out_lse.copy_(lse_of_it.T)
    return launch
