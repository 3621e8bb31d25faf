"""FlashInfer (flashinfer-python): paged and ragged prefill, paged decode. plan() is not timed, run() is.

e4m3 is left out: run() takes one scale for a whole tensor, and the contract has one per sequence and KV head. POD is left
out: it is one prefill beside a batch of decodes.
"""
import functools

import attnbench as ab

flashinfer = ab.need("flashinfer", "pip install flashinfer-python")
import torch

import call_views

# variants, state: LSE (total_q, heads) in base 2, and -inf for a row without keys; exp is ex2.approx, P is converted
# to the type of V. Backend fa2 sums P after this rounding (prefill: m16k16_rowsum_f16f16f32), so that the LSE has its error, at
# most 2^-9. Tiles multiply P = 0 by rows of V left of a window, and with TMA (backend fa3) past the last key.
_COMMON = {"p": "input", "exp_rel_err": 2**-9, "returns": True, "lse": "base2 token_major", "padding": "finite", "lengths": "host",
           "min_compute_capability": 80}


def _options(c, q, k):
    left, right = call_views.window(c)
    if right > 0:
        raise ab.Unsupported("a window to the left only")
    return right == 0, {"sm_scale": c.softmax_scale, "window_left": left, "q_data_type": q.dtype, "kv_data_type": k.dtype}


@functools.cache
def _workspace(device):
    """Scratch of the size that its documentation recommends. Launches follow each other, so all wrappers share it."""
    return torch.zeros(128 << 20, dtype=torch.uint8, device=device)


def _made(kind, c, **options):
    return kind(_workspace(f"cuda:{c.device_index}"), "HND" if c.has("hnd") else "NHD", **options)


def _launch(wrapper, *tensors):
    return lambda: wrapper.run(*tensors, return_lse=True)


def _prefill(c):
    call_views.refuse_empty(c)
    q, k, v, cu_q, cu_k = c.torch("q k v cu_seqlens_q cu_seqlens_k")
    (causal, options), heads = _options(c, q, k), (c.num_heads_q, c.num_heads_kv, c.head_dim)
    options |= {"causal": causal, "logits_soft_cap": c.softcap}
    if c.has("packed"):
        wrapper = _made(flashinfer.BatchPrefillWithRaggedKVCacheWrapper, c)
        wrapper.plan(cu_q, cu_k, *heads, **options)
        return _launch(wrapper, q, k, v)
    wrapper = _made(flashinfer.BatchPrefillWithPagedKVCacheWrapper, c)
    wrapper.plan(cu_q.cpu(), *call_views.pages(c), *heads, c.block_size, **options)
    return _launch(wrapper, q, (k, v))


flashinfer_prefill = ab.attention("packed paged hnd causal window bf16 fp16", name="flashinfer_prefill", head_dim=(64, 128, 256),
                                  summary="FlashInfer: BatchPrefillWithPagedKVCacheWrapper, ...Ragged...", **_COMMON)(_prefill)


# math: tanh is tanh.approx, with a relative error of 2^-11 (PTX ISA).
@ab.attention("packed paged hnd causal window softcap bf16 fp16", head_dim=(64, 128, 256), **_COMMON)
def flashinfer_prefill_softcap(c):
    """FlashInfer's prefill with a softcap, whose tanh is approximate"""
    call_views.require_softcap(c, "flashinfer_prefill")
    return _prefill(c)


@ab.attention("paged hnd causal window bf16 fp16", head_dim=(64, 128, 256), **_COMMON)
def flashinfer_decode(c):
    """FlashInfer: BatchDecodeWithPagedKVCacheWrapper, one query for each sequence"""
    if set(call_views.lengths(c)[0]) != {1} or c.total_q != c.batch:
        raise ab.Unsupported("one query for each sequence required")
    q, k, v = c.torch("q k v")
    group = c.num_heads_q // c.num_heads_kv  # tensor cores are for large groups (documentation of use_tensor_cores)
    wrapper = _made(flashinfer.BatchDecodeWithPagedKVCacheWrapper, c, use_tensor_cores=group >= 4)
    wrapper.plan(*call_views.pages(c), c.num_heads_q, c.num_heads_kv, c.head_dim, c.block_size, **_options(c, q, k)[1])
    return _launch(wrapper, q, (k, v))
