"""A FlashAttention-style kernel in Triton for a GPU, to start your own from (harness/python/README.md)."""
import attnbench as ab
import triton
import triton.language as tl


@triton.jit
def _attend(Q, K, V, O, LSE, CU_Q, CU_K, q_token, q_head, k_token, k_head, v_token, v_head, o_token, o_head, lse_head,
            scale, group, CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """BLOCK_M queries of one head, with a running softmax over blocks of BLOCK_N keys. Strides are in elements."""
    head, b = tl.program_id(1), tl.program_id(2)
    q_begin, k_begin = tl.load(CU_Q + b), tl.load(CU_K + b)
    len_q, len_k = tl.load(CU_Q + b + 1) - q_begin, tl.load(CU_K + b + 1) - k_begin
    first = tl.program_id(0) * BLOCK_M
    if first >= len_q:
        return
    i = first + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    row = (q_begin + i).to(tl.int64)
    row_ok = i < len_q
    q = tl.load(Q + row[:, None] * q_token + head * q_head + d[None, :], mask=row_ok[:, None], other=0.0)

    top = tl.full([BLOCK_M], float("-inf"), tl.float32)  # largest q.k so far
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    end = len_k
    if CAUSAL:  # query i sees keys up to i + len_k - len_q: the last query sees the last key
        end = tl.minimum(len_k, first + BLOCK_M + len_k - len_q)
    for start in range(0, end, BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        key = (k_begin + j).to(tl.int64)
        key_ok = j < len_k
        # Rows past the last key may hold NaN. They are loaded as zeros: 0 * NaN would be NaN.
        k = tl.load(K + key[None, :] * k_token + head // group * k_head + d[:, None], mask=key_ok[None, :], other=0.0)
        v = tl.load(V + key[:, None] * v_token + head // group * v_head + d[None, :], mask=key_ok[:, None], other=0.0)
        visible = key_ok[None, :] & row_ok[:, None]
        if CAUSAL:
            visible = visible & (j[None, :] <= i[:, None] + len_k - len_q)
        s = tl.where(visible, tl.dot(q, k), float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        base = tl.where(new_top == float("-inf"), 0.0, new_top)  # -inf - -inf would be NaN
        p = tl.exp2((s - base[:, None]) * (scale * 1.4426950408889634))  # exp(x) = exp2(x * log2(e))
        kept = tl.exp2((top - base) * (scale * 1.4426950408889634))
        total = total * kept + tl.sum(p, 1)
        acc = acc * kept[:, None] + tl.dot(p.to(v.dtype), v)
        top = new_top

    # A row that sees no key: O = 0, LSE = -inf. The test is total == 0, so a NaN that was read shows in O.
    o = tl.where(total[:, None] == 0, 0.0, acc / total[:, None])
    tl.store(O + row[:, None] * o_token + head * o_head + d[None, :], o.to(O.dtype.element_ty), mask=row_ok[:, None])
    tl.store(LSE + head * lse_head + row, top * scale + tl.log(total), mask=row_ok)


# `features` says what a launch may use, in names of `attnbench kernels`; other cases are skipped. p="input": P
# is rounded to the type of V before P.V. `acc` is the type of the sums, `exp_rel_err` the error of exp2; the
# tolerance follows from them.
@ab.attention(features="packed causal bf16 fp16", head_dim=(16, 32, 64, 128, 256), p="input", acc="fp32",
              exp_rel_err=2**-22, min_compute_capability=80, deterministic=True, batch_invariant=True)
def example(c):
    """a start for one's own in Triton: packed sequences, a running softmax"""
    # This part runs once per case and is not timed. q, k and v hold NaN until the launch. A launch may be
    # repeated with shorter sequences, as a CUDA graph is, so the kernel reads lengths itself; c.max_seqlen_q holds.
    q, k, v, out, lse, cu_q, cu_k = c.torch("q k v out lse cu_seqlens_q cu_seqlens_k")
    strides = (*q.stride()[:2], *k.stride()[:2], *v.stride()[:2], *out.stride()[:2], lse.stride(0))
    group = c.num_heads_q // c.num_heads_kv  # query head h reads KV head h // group
    block_m, block_n = 64, 64 if c.head_dim <= 128 else 32
    grid = (triton.cdiv(c.max_seqlen_q, block_m), c.num_heads_q, c.batch)
    if c.batch > 65535:
        raise ab.Unsupported(f"at most 65535 sequences required, given {c.batch}")  # the case is skipped
    # This part is timed, on the stream of the harness. The first launch of a case compiles, and is not timed.
    return lambda: _attend[grid](q, k, v, out, lse, cu_q, cu_k, *strides, c.softmax_scale, group,
                                 CAUSAL=bool(c.causal), D=c.head_dim, BLOCK_M=block_m, BLOCK_N=block_n,
                                 num_warps=4, num_stages=2)
