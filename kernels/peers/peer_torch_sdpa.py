"""PyTorch: scaled_dot_product_attention, one kernel for each backend. Batches of one length only."""
import attnbench as ab

torch = ab.need("torch", "pip install torch")
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

import call_views

_PACKED = "packed causal top_left bf16 fp16"


def _sdpa(c, backend, can_use=None):
    # The mask of is_causal begins at the first key (documentation of scaled_dot_product_attention), as top_left does. That
    # of causal alone ends at the last one: the same for equal lengths, and no mask at all for a single query.
    q, k, v = (x.transpose(1, 2) for x in call_views.one_length(c))
    call_views.refuse_blind_queries(c, "softmax of no score is NaN")
    top_left = c.has("top_left")
    causal = bool(c.causal) and (top_left or q.shape[2] > 1)
    mask = causal_lower_right(q.shape[2], k.shape[2]) if causal and not top_left and q.shape[2] != k.shape[2] else None
    grouped = c.num_heads_q != c.num_heads_kv
    if c.device == "cuda" and can_use is not None:
        asked = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, causal, grouped)
        if not can_use(asked):
            raise ab.Unsupported("PyTorch has no such kernel for these types and shapes on this GPU")
    options = {"attn_mask": mask, "is_causal": causal and mask is None, "scale": c.softmax_scale, "enable_gqa": grouped}

    def launch():
        with sdpa_kernel(backend):
            out = scaled_dot_product_attention(q, k, v, **options)
        return call_views.rows(out.transpose(1, 2))
    return launch


# P is rounded to the type of V before P.V, and sums are float32 (aten: flash_api, FlashAttentionKernel). On the
# CPU exp is Vectorized::exp_u20, with an error of 20 units in the last place.
@ab.attention(_PACKED + " fp32", device=("cpu", "cuda"), p="input", exp_rel_err=2**-18, returns=True, lse="none", lengths="host")
def torch_sdpa_flash(c):
    """scaled_dot_product_attention, backend FLASH_ATTENTION"""
    return _sdpa(c, SDPBackend.FLASH_ATTENTION, torch.backends.cuda.can_use_flash_attention)


# aten: kernel_forward keeps P in the type of the inputs. Its float32 path may use TF32, so fp32 is not listed.
@ab.attention(_PACKED, p="input", returns=True, lse="none", lengths="host")
def torch_sdpa_efficient(c):
    """scaled_dot_product_attention, backend EFFICIENT_ATTENTION"""
    return _sdpa(c, SDPBackend.EFFICIENT_ATTENTION, torch.backends.cuda.can_use_efficient_attention)


@ab.attention(_PACKED, p="input", returns=True, lse="none", lengths="host")
def torch_sdpa_cudnn(c):
    """scaled_dot_product_attention, backend CUDNN_ATTENTION"""
    if c.causal and not c.has("top_left") and len({n for lists in call_views.lengths(c) for n in lists}) > 1 and c.max_seqlen_q > 1:
        raise ab.Unsupported("a causal mask needs as many queries as keys, or one query")
    return _sdpa(c, SDPBackend.CUDNN_ATTENTION, torch.backends.cuda.can_use_cudnn_attention)


# aten: _scaled_dot_product_attention_math computes bf16 and fp16 in float32, P included.
@ab.attention(_PACKED + " fp32", device=("cpu", "cuda"), p="fp32", returns=True, lse="none", lengths="host")
def torch_sdpa_math(c):
    """scaled_dot_product_attention, backend MATH"""
    return _sdpa(c, SDPBackend.MATH)
