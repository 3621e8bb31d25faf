"""xFormers: fmha.triton_splitk, decode over pages in Triton, which needs no compiled extension of xFormers."""
import alone
import attnbench as ab

fmha = ab.need("xformers.ops.fmha", "pip install xformers")
splitk = ab.need("xformers.ops.fmha.triton_splitk", "pip install xformers")

import call_views


# The source: P is rounded to the type of q, tl.dot multiplies fp32 as TF32, LSE (1, KV heads, heads of each, rows). Its
# documentation: head_dim a multiple of 8, pages of a multiple of 64 rows.
@ab.attention("paged causal bf16 fp16", head_dim=range(16, 257, 8), block_size=range(64, 4097, 64), device=alone.DEVICE, p="q",
              acc_input="tf32", returns=True, lengths="host", serves="decode")
def xformers_splitk(c):
    """xFormers: triton_splitk.FwOp, one query per sequence"""
    call_views.refuse_empty(c)
    q, table, (k, v) = c.torch("q").unsqueeze(0), call_views.block_table(c), (x.unsqueeze(0) for x in call_views.pool(c))
    len_q, len_k = call_views.lengths(c)
    mask = fmha.attn_bias.PagedBlockDiagonalPaddedKeysMask.from_seqlens(
        q_seqlen=len_q, kv_seqlen=len_k, block_tables=table, page_size=c.block_size)
    q = q.unflatten(2, (c.num_heads_kv, -1))
    k, v = (x.unsqueeze(3).expand(-1, -1, -1, q.shape[3], -1) for x in (k, v))
    given = fmha.Inputs(query=q, key=k, value=v, attn_bias=mask, scale=c.softmax_scale)

    def launch():
        out, context = splitk.FwOp.apply(given, needs_gradient=True)
        return out.reshape(c.total_q, c.num_heads_q, c.head_dim), context.lse.reshape(c.num_heads_q, c.total_q)
    return launch
