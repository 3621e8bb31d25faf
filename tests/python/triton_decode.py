"""Decode as servers do it, for tests in Triton's interpreter: one query per sequence, the keys in pages and cut into
parts, the query heads of a KV head together, the states of the parts merged by a second kernel."""
import attnbench as ab
import torch
import triton
import triton.language as tl


@triton.jit
def _part(Q, K, V, PART, LSE, USED_K, TABLE, q_token, q_head, k_block, k_token, k_head, v_block, v_token, v_head, table_row, scale,
          heads, group, D: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, DVP: tl.constexpr, ROWS: tl.constexpr, PAGE: tl.constexpr,
          PARTS: tl.constexpr):
    b, kv_head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    len_k = tl.load(USED_K + b)
    pages = tl.cdiv(tl.cdiv(len_k, PAGE), PARTS)  # of a part
    first, last = part * pages, tl.minimum((part + 1) * pages, tl.cdiv(len_k, PAGE))
    r, d, dv, slot = tl.arange(0, ROWS), tl.arange(0, DP), tl.arange(0, DVP), tl.arange(0, PAGE)
    head = kv_head * group + r
    q = tl.load(Q + b * q_token + head[:, None] * q_head + d[None, :], mask=(r < group)[:, None] & (d < D)[None, :], other=0.0)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DVP], tl.float32)
    for page in range(first, last):
        block = tl.load(TABLE + b * table_row + page).to(tl.int64)
        ok = page * PAGE + slot < len_k
        k = tl.load(K + block * k_block + slot[None, :] * k_token + kv_head * k_head + d[:, None], mask=ok[None, :] & (d < D)[:, None], other=0.0)
        v = tl.load(V + block * v_block + slot[:, None] * v_token + kv_head * v_head + dv[None, :], mask=ok[:, None] & (dv < DV)[None, :], other=0.0)
        s = tl.where(ok[None, :], tl.dot(q, k) * (scale * 1.4426950408889634), float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new_top[:, None])
        kept = tl.exp2(top - new_top)
        total = total * kept + tl.sum(p, 1)
        acc = acc * kept[:, None] + tl.dot(p.to(v.dtype), v)
        top = new_top
    at = (b * heads + head) * PARTS + part
    kept = tl.where(total > 0, total, 1.0)  # a part may have no pages
    tl.store(PART + at[:, None] * DV + dv[None, :], acc / kept[:, None], mask=(r < group)[:, None] & (dv < DV)[None, :])
    tl.store(LSE + at, tl.where(total > 0, top + tl.log2(kept), float("-inf")), mask=r < group)


@triton.jit
def _merge(PART, PART_LSE, O, LSE, o_token, o_head, lse_head, heads, DV: tl.constexpr, DVP: tl.constexpr, PARTS: tl.constexpr):
    b, head = tl.program_id(0), tl.program_id(1)
    dv, part = tl.arange(0, DVP), tl.arange(0, PARTS)
    lse = tl.load(PART_LSE + (b * heads + head) * PARTS + part)
    top = tl.max(lse, 0)
    w = tl.exp2(lse - top)
    o = tl.load(PART + ((b * heads + head) * PARTS + part)[:, None] * DV + dv[None, :], mask=(dv < DV)[None, :], other=0.0)
    o = tl.sum(o * w[:, None], 0) / tl.sum(w, 0)
    tl.store(O + b * o_token + head * o_head + dv, o.to(O.dtype.element_ty), mask=dv < DV)
    tl.store(LSE + head * lse_head + b, (top + tl.log2(tl.sum(w, 0))) / 1.4426950408889634)


def launch_of(c, parts):
    q, k, v, out, lse, used_k, table = c.torch("q k v out lse seqused_k block_table")
    part = torch.empty((c.batch, c.num_heads_q, parts, c.head_dim_v), dtype=torch.float32, device=q.device)
    part_lse = torch.empty((c.batch, c.num_heads_q, parts), dtype=torch.float32, device=q.device)
    group = c.num_heads_q // c.num_heads_kv
    sizes = dict(DV=c.head_dim_v, DVP=triton.next_power_of_2(c.head_dim_v), PARTS=parts)

    def launch():
        _part[(c.batch, c.num_heads_kv, parts)](
            q, k, v, part, part_lse, used_k, table, *q.stride()[:2], *k.stride()[:3], *v.stride()[:3], table.stride(0), c.softmax_scale,
            c.num_heads_q, group, D=c.head_dim, DP=triton.next_power_of_2(c.head_dim), ROWS=max(16, triton.next_power_of_2(group)),
            PAGE=c.block_size, **sizes)
        _merge[(c.batch, c.num_heads_q)](part, part_lse, out, lse, *out.stride()[:2], lse.stride(0), c.num_heads_q, **sizes)
    return launch


DECODES = dict(block_size=(16, 32, 64, 128), device="cpu" if triton.knobs.runtime.interpret else "cuda", serves="decode", p="input")


@ab.attention("paged causal bf16 fp16", **DECODES)
def paged_decode(c):
    return launch_of(c, parts=4)


@ab.attention("paged causal bf16 fp16 head_dim_v v_is_k_view", **DECODES)
def latent_decode(c):
    return launch_of(c, parts=2)
