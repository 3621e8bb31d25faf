"""FlashAttention 3 (flash_attn_interface, the folder hopper/ of flash-attention): the gradients of flash_attn_varlen_func."""
import attnbench as ab

flash = ab.need("flash_attn_interface", "pip install git+https://github.com/Dao-AILab/flash-attention#subdirectory=hopper")

import call_views

# hopper mainloop_bwd: P and dS are converted to the type of q; the softmax is ex2.approx. hopper flash_api, mha_bwd: dq,
# and with grouped heads dk and dv, are float32 sums by atomics, which one more kernel rounds. So parts of heads are not.
_OPTIONS = {"head_dim": range(8, 257, 8), "p": "input", "padding": "finite", "min_compute_capability": 90}
# Later versions are operators of PyTorch, and take the sides of the window one by one.
_SIDES_APART = hasattr(flash, "_flash_attn_backward_fake")


def _backward(c):
    call_views.refuse_blind_queries(c, "its gradients are not documented")
    d_out, q, k, v, out, lse = c.torch("d_out q k v out lse")
    cu_q, cu_k = c.torch("cu_seqlens_q cu_seqlens_k")
    grads = c.torch("dq dk dv")
    window = call_views.window(c)
    sides = window if _SIDES_APART else (window,)
    return lambda: flash._flash_attn_backward(
        d_out, q, k, v, out, lse, cu_q, cu_k, None, None, c.max_seqlen_q, c.max_seqlen_k, *grads, c.softmax_scale, bool(c.causal),
        *sides, c.softcap)


@ab.attention_backward("packed causal window bf16 fp16", **_OPTIONS)
def flash_attn_3_backward(c):
    """FlashAttention 3: gradients of flash_attn_varlen_func"""
    return _backward(c)


# cutlass::fast_tanh is tanh.approx, with a relative error of 2^-11 (PTX ISA).
@ab.attention_backward("packed causal window softcap bf16 fp16", exp_rel_err=2**-11, **_OPTIONS)
def flash_attn_3_backward_softcap(c):
    """FlashAttention 3's gradients with a softcap, whose tanh is approximate"""
    call_views.require_softcap(c, "flash_attn_3_backward")
    return _backward(c)
