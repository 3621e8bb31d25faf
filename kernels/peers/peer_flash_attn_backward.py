"""FlashAttention 2 (flash-attn): the gradients of flash_attn_varlen_func."""
import attnbench as ab

flash = ab.need("flash_attn.flash_attn_interface", "pip install flash-attn")

import call_views

# flash_api, mha_varlen_bwd: head_dim up to 256. P and dS are converted to the type of q, sums are float32, and those of dq
# are atomic. With grouped heads dk_expanded and dv_expanded, of each query head, have the type of q; at::sum_out sums them.
# flash_bwd_kernel: the softmax is exp2f with -use_fast_math.
_OPTIONS = {"head_dim": range(8, 257, 8), "p": "input", "head_grads": "input", "padding": "finite", "min_compute_capability": 80}


def _backward(c):
    """The function below the autograd of flash_attn_varlen_func, which writes to the given gradients."""
    call_views.refuse_blind_queries(c, "flash_attn's LSE of it is +inf")
    if c.alibi_sqrt:
        raise ab.Unsupported("ALiBi of the distance only, not of its square root")
    tensors = c.torch("d_out q k v out lse dq dk dv cu_seqlens_q cu_seqlens_k")
    slopes = c.torch("alibi_slopes")
    left, right = call_views.window_of_flash_2(c)
    return lambda: flash._flash_attn_varlen_backward(
        *tensors, c.max_seqlen_q, c.max_seqlen_k, 0.0, c.softmax_scale, bool(c.causal), left, right, c.softcap, slopes, False)


@ab.attention_backward("packed causal window alibi bf16 fp16", **_OPTIONS)
def flash_attn_backward(c):
    """FlashAttention 2: gradients of flash_attn_varlen_func"""
    return _backward(c)


# cutlass::fast_tanh is tanh.approx, with a relative error of 2^-11 (PTX ISA).
@ab.attention_backward("packed causal window alibi softcap bf16 fp16", exp_rel_err=2**-11, **_OPTIONS)
def flash_attn_backward_softcap(c):
    """FlashAttention 2's gradients with a softcap, whose tanh is approximate"""
    call_views.require_softcap(c, "flash_attn_backward")
    return _backward(c)
