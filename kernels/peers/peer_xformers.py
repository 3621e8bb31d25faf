"""xFormers: memory_efficient_attention_forward with block-diagonal masks, which chooses a kernel by itself."""
import attnbench as ab

fmha = ab.need("xformers.ops.fmha", "pip install xformers")
import xformers

import call_views

# Without its C++ library fmha refuses all tensors of a GPU (fmha/common), although it then calls PyTorch's own kernels.
if not xformers._has_cpp_library:
    raise ImportError("xformers was built for another CUDA or PyTorch: python3 -m xformers.info")


# attn_bias: from_seqlens packs sequences without gaps, from_bottomright aligns masks at the last key, and a window of n is
# the query and n - 1 keys to its left (flash, _window_size). P has the type of V in each of its kernels. Its LSE has
# another shape in each of them, so none is asked for.
@ab.attention("packed causal window bf16 fp16", head_dim=range(8, 257, 8), p="input", returns=True, lse="none", padding="finite",
              lengths="host", min_compute_capability=80)
def xformers_varlen(c):
    """xFormers: memory_efficient_attention_forward, BlockDiagonalMask"""
    call_views.refuse_lead_rows(c)
    call_views.refuse_blind_queries(c, "xFormers' masks allow none such")
    left, right = call_views.window(c)
    if left >= 0 and right != 0 or right > 0:
        raise ab.Unsupported("a window to the left of a causal mask only")
    q, k, v = (x.unsqueeze(0) for x in c.torch("q k v"))
    mask = fmha.attn_bias.BlockDiagonalMask.from_seqlens(*call_views.lengths(c), device=q.device)
    if left >= 0:
        mask = mask.make_local_attention_from_bottomright(left + 1)
    elif right == 0:
        mask = mask.make_causal_from_bottomright()
    if c.num_heads_q != c.num_heads_kv:
        if c.max_seqlen_q == 1 and c.total_q != c.batch:  # FlashAttention 2 takes q as (batch, heads) then
            raise ab.Unsupported("grouped heads and one query at most: a query in each sequence required")
        # (1, rows, KV heads, query heads of each, D), K and V without copies
        q = q.unflatten(2, (c.num_heads_kv, -1))
        k, v = (x.unsqueeze(3).expand(q.shape[0], -1, -1, q.shape[3], -1) for x in (k, v))

    def launch():
        out = fmha.memory_efficient_attention_forward(q, k, v, attn_bias=mask, scale=c.softmax_scale)
        return out.reshape(c.total_q, c.num_heads_q, c.head_dim)
    return launch
