"""flash-linear-attention (fla): its softmax attention in Triton, without what else the import of fla needs."""
import alone
import attnbench as ab
import torch

import call_views


def _same(function=None, *_, **__):
    """In place of a decorator, with arguments or without."""
    return function if callable(function) else _same


parallel, decoding = alone.files(
    "pip install flash-linear-attention", "fla.ops.attn.parallel", "fla.ops.attn.decoding", also=("fla.ops.utils.op", "fla.ops.utils.constant"),
    without=("einops",), dispatch=_same, autocast_custom_fwd=_same, autocast_custom_bwd=_same, contiguous=_same, input_guard=_same,
    check_shared_mem=lambda arch, _=None: True, autotune_cache_kwargs={}, IS_GATHER_SUPPORTED=True)


# The source: P is rounded to the type of q, tl.dot multiplies fp32 as TF32, 1 / ln 2 is 1.4426950216, LSE (1, rows, heads) in base 2;
# tensors have no gaps.
@ab.attention("packed causal window sinks bf16 fp16 fp32", head_dim=range(16, 257), device=alone.DEVICE, p="q", acc_input="tf32", returns=True,
              lse="base2 token_major", lengths="host", serves="prefill", never="strides")
def fla_parallel(c):
    """flash-linear-attention: parallel_attn, its forward kernel"""
    call_views.refuse_empty(c)
    call_views.refuse_lead_rows(c)
    call_views.require_one_cu(c)
    left, right = call_views.window(c)
    if right != 0:
        raise ab.Unsupported("a causal mask required")
    (q, k, v), (cu, sinks) = (x.unsqueeze(0) for x in c.torch("q k v")), c.torch("cu_seqlens_q sinks")
    tiles = [(b, i) for b, n in enumerate(call_views.lengths(c)[0]) for i in range(-(-n // 128))]
    chunks = torch.tensor(tiles, dtype=torch.int32, device=q.device)
    bias = None if sinks is None else sinks / 0.6931471805599453

    def launch():
        out, lse = parallel.parallel_attn_fwd(q, k, v, None, bias, c.softmax_scale, left + 1 if left >= 0 else None, cu.long(), chunks)
        return out[0], lse[0]
    return launch


# The source multiplies in fp32, after q times the factor of scores is rounded to the type of q: a relative error of 2^-9 in bf16.
@ab.attention("packed causal window sinks bf16 fp16 fp32", head_dim=range(16, 257), device=alone.DEVICE, returns=True, lse="none",
              serves="decode", never="strides")
def fla_decode(c):
    """flash-linear-attention: attn_decoding_one_step"""
    call_views.refuse_empty(c)
    left, right = call_views.window(c)
    if right > 0:
        raise ab.Unsupported("a window to the left only")
    q, k, v, cu, sinks = c.torch("q k v cu_seqlens_k sinks")

    def launch():
        return decoding.attn_decoding_one_step(q[None], k[None], v[None], scale=c.softmax_scale, cu_seqlens=cu.long(),
                                               window_size=left + 1 if left >= 0 else None, sink_bias=sinks)[0]
    return launch
