"""SageAttention (sageattention): sageattn, which rounds q and K to int8, and P and V to fp16 or FP8 by the GPU."""
import inspect

import attnbench as ab

sage = ab.need("sageattention", "pip install sageattention (version 1) or git+https://github.com/thu-ml/SageAttention (2)")

import call_views

# Version 1 swallows return_lse in **kwargs.
_V2 = "return_lse" in inspect.signature(sage.sageattn).parameters
# The default smooth_k=True of version 1 subtracts the mean of K in place (core of 1.0.6: "k -= km"): the next layer, or the
# next launch, would read another K. Version 2 leaves K as it is.
_MORE = {"return_lse": True} if _V2 else {"smooth_k": False}
_GPUS = (80, 86, 89, 90, 120, 121)  # sageattn of version 2 raises on others; 1 is in Triton


# core: head_dim up to 128, of which others than 64 and 128 are padded by a copy; its causal mask begins at the first key;
# LSE (batch, heads, length) in natural logarithm, to which a product in the type of q is added. On sm_89 and later P and V
# are e4m3; version 1 has fp16 and no LSE. The int8 rounding of q and K, scaled for each warp or thread (1: block), is
# within what sums in bf16 would cost.
@ab.attention("packed causal top_left bf16 fp16", head_dim=(64, 128), p="e4m3", acc="bf16", returns=True,
              lse="natural" if _V2 else "none", lengths="host", min_compute_capability=80)
def sage_attention(c):
    """SageAttention: sageattn"""
    if _V2 and c.compute_capability not in _GPUS:
        raise ab.Unsupported(f"a GPU of compute capability {', '.join(map(str, _GPUS))} required, given {c.compute_capability}")
    q, k, v = call_views.one_length(c)
    if c.causal and not c.has("top_left") and q.shape[1] not in (1, k.shape[1]):
        raise ab.Unsupported("a causal mask needs as many queries as keys, or one query")
    causal = bool(c.causal) and (c.has("top_left") or q.shape[1] > 1)

    def launch():
        out = sage.sageattn(q, k, v, tensor_layout="NHD", is_causal=causal, sm_scale=c.softmax_scale, **_MORE)
        return (call_views.rows(out[0]), call_views.rows_of_lse(out[1])) if _V2 else call_views.rows(out)
    return launch
