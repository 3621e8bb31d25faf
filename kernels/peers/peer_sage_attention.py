"""SageAttention 2 (sageattention): sageattn, which rounds q and K to int8, and P and V to fp16 or FP8 by the GPU."""
import inspect

import attnbench as ab

sage = ab.need("sageattention", "pip install git+https://github.com/thu-ml/SageAttention")

import call_views


# core: head_dim up to 128, of which others than 64 and 128 are padded by a copy; its causal mask begins at the first key;
# LSE (batch, heads, length) in natural logarithm, to which a product in the type of q is added. On sm_89 and later P and V
# are e4m3. The int8 rounding of q and K, scaled for each warp or thread, is within what sums in bf16 would cost.
@ab.attention("packed causal bf16 fp16", head_dim=(64, 128), p="e4m3", acc="bf16", returns=True,
              lengths="host", min_compute_capability=80)
def sage_attention(c):
    """SageAttention: sageattn"""
    if "return_lse" not in inspect.signature(sage.sageattn).parameters:
        raise ab.Unsupported("version 2 of SageAttention required, and the package index has 1")
    q, k, v = call_views.one_length(c)
    if c.causal and q.shape[1] not in (1, k.shape[1]):
        raise ab.Unsupported("a causal mask needs as many queries as keys, or one query")
    causal = bool(c.causal) and q.shape[1] > 1

    def launch():
        out, lse = sage.sageattn(q, k, v, tensor_layout="NHD", is_causal=causal, sm_scale=c.softmax_scale, return_lse=True)
        return call_views.rows(out), call_views.rows_of_lse(lse)
    return launch
