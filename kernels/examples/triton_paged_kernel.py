"""Paged decode in Triton: few queries per sequence over a cache in pages (harness/python/README.md)."""
import attnbench as ab
import triton
import triton.language as tl


@triton.jit
def _decode(Q, K, V, O, LSE, CU_Q, USED_K, TABLE, q_token, q_head, k_block, k_token, k_head, v_block, v_token, v_head,
            o_token, o_head, lse_head, table_row, scale, group, CAUSAL: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
            ROWS: tl.constexpr):
    """The queries of one sequence with the `group` heads that share a KV head, a page at a time."""
    b, kv_head = tl.program_id(0), tl.program_id(1)
    q_begin = tl.load(CU_Q + b)
    len_q, len_k = tl.load(CU_Q + b + 1) - q_begin, tl.load(USED_K + b)
    r = tl.arange(0, ROWS)
    i, head = r // group, kv_head * group + r % group
    d = tl.arange(0, D)
    row_ok = i < len_q
    row = (q_begin + i).to(tl.int64)
    q = tl.load(Q + row[:, None] * q_token + head[:, None] * q_head + d[None, :], mask=row_ok[:, None], other=0.0)

    top = tl.full([ROWS], float("-inf"), tl.float32)  # largest q.k so far
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    for start in range(0, len_k, PAGE):
        page = tl.load(TABLE + b * table_row + start // PAGE).to(tl.int64)  # entries past the last page are junk
        slot = tl.arange(0, PAGE)
        j = start + slot
        # Slots past the last key may hold NaN. They are loaded as zeros: 0 * NaN would be NaN.
        k = tl.load(K + page * k_block + slot[None, :] * k_token + kv_head * k_head + d[:, None], mask=j[None, :] < len_k, other=0.0)
        v = tl.load(V + page * v_block + slot[:, None] * v_token + kv_head * v_head + d[None, :], mask=j[:, None] < len_k, other=0.0)
        visible = (j[None, :] < len_k) & row_ok[:, None]
        if CAUSAL:  # query i sees keys up to i + len_k - len_q
            visible = visible & (j[None, :] <= i[:, None] + len_k - len_q)
        s = tl.where(visible, tl.dot(q, k), float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        base = tl.where(new_top == float("-inf"), 0.0, new_top)  # -inf - -inf would be NaN
        p = tl.exp2((s - base[:, None]) * (scale * 1.4426950408889634))  # exp(x) = exp2(x * log2(e))
        kept = tl.exp2((top - base) * (scale * 1.4426950408889634))
        total = total * kept + tl.sum(p, 1)
        acc = acc * kept[:, None] + tl.dot(p.to(v.dtype), v)
        top = new_top

    # A row that sees no key: O = 0, LSE = -inf.
    o = tl.where(total[:, None] == 0, 0.0, acc / total[:, None])
    tl.store(O + row[:, None] * o_token + head[:, None] * o_head + d[None, :], o.to(O.dtype.element_ty), mask=row_ok[:, None])
    tl.store(LSE + head * lse_head + row, top * scale + tl.log(total), mask=row_ok)


@ab.attention(features="paged causal bf16 fp16", head_dim=(16, 32, 64, 128, 256), block_size=(16, 32, 64, 128),
              device="cpu" if triton.knobs.runtime.interpret else "cuda",  # TRITON_INTERPRET=1
              p="input", exp_rel_err=2**-22, min_compute_capability=80, deterministic=True, batch_invariant=True)
def triton_paged_decode(c):
    """decode over pages in Triton, one program per sequence and KV head"""
    group = c.num_heads_q // c.num_heads_kv
    rows = max(16, triton.next_power_of_2(c.max_seqlen_q * group))
    if rows > 64:
        raise ab.Unsupported(f"at most 64 rows of queries per sequence and KV head required, given {c.max_seqlen_q} x {group}")
    q, k, v, out, lse, cu_q, used_k, table = c.torch("q k v out lse cu_seqlens_q seqused_k block_table")
    strides = (*q.stride()[:2], *k.stride()[:3], *v.stride()[:3], *out.stride()[:2], lse.stride(0), table.stride(0))
    grid = (c.batch, c.num_heads_kv)
    return lambda: _decode[grid](q, k, v, out, lse, cu_q, used_k, table, *strides, c.softmax_scale, group,
                                 CAUSAL=bool(c.causal), D=c.head_dim, PAGE=c.block_size, ROWS=rows, num_warps=4)
