"""PyTorch: torch.nn.attention.varlen.varlen_attn, which runs cuDNN or a FlashAttention that PyTorch was built with."""
import inspect

import attnbench as ab

varlen = ab.need("torch.nn.attention.varlen", "pip install 'torch>=2.12'")

import call_views

_KNOWN = inspect.signature(varlen.varlen_attn).parameters


# Documentation of varlen_attn: window_size (-1, 0) is causal; pages need seqused_k. aten's flash_api: pages of a
# multiple of 256 rows, LSE (heads, total_q) in natural logarithm and +inf for a row without keys, P in the type of V.
# Its windows multiply P = 0 by rows of V that are left of them.
@ab.attention("packed paged seqused_k causal window bf16 fp16", head_dim=range(8, 257, 8), block_size=range(256, 4097, 256),
              p="input", returns=True, lse="plus_inf", padding="finite", min_compute_capability=80)
def torch_varlen(c):
    """torch.nn.attention.varlen.varlen_attn"""
    call_views.refuse_empty(c)
    q, k, v, cu_q, cu_k = c.torch("q k v cu_seqlens_q cu_seqlens_k")
    used, block_table = c.torch("seqused_k"), call_views.block_table(c)
    more = {"window_size": call_views.window(c), "scale": c.softmax_scale}
    if c.num_heads_q != c.num_heads_kv:
        more["enable_gqa"] = True
    if used is not None:
        more |= {"seqused_k": used, "block_table": block_table}
    missing = [name for name in more if name not in _KNOWN]
    if missing:
        raise ab.Unsupported(f"varlen_attn of this PyTorch has no {missing[0]}: pip install 'torch>=2.12'")
    # With max_q = 1 and grouped heads aten takes q as (batch, heads): each sequence must have its query.
    max_q = c.max_seqlen_q if c.total_q == c.batch else max(2, c.max_seqlen_q)
    aux = varlen.AuxRequest(lse=True)
    return lambda: varlen.varlen_attn(q, k, v, cu_q, cu_k, max_q, c.max_seqlen_k, return_aux=aux, **more)
