"""What the cheats in Python have in common: a right kernel, and one that computes a part of the heads."""
import attnbench as ab

np = ab.need("numpy", "pip install numpy")


def cheat(function):
    """A kernel that can do the cases of `selftest --cheats` and bears the name of its file."""
    return ab.attention("packed paged causal seqused_k bf16", device="cpu", deterministic=True)(function)


def compute(c, heads=None, out=None):
    """Writes O and LSE of these query heads (default: all); `out`: O goes there in place of c.out."""
    out = c.out if out is None else out
    group = c.num_heads_q // c.num_heads_kv
    for b in range(c.batch):
        first, end = c.cu_seqlens_q[b], c.cu_seqlens_q[b + 1]
        n = c.seqused_k[b] if c.seqused_k else c.cu_seqlens_k[b + 1] - c.cu_seqlens_k[b]
        if c.block_table is None:
            rows = slice(c.cu_seqlens_k[b], c.cu_seqlens_k[b] + n)
            k, v = c.k[rows], c.v[rows]
        else:
            blocks = c.block_table[b, :-(-n // c.block_size)]
            k, v = (t[blocks].reshape(-1, c.num_heads_kv, c.head_dim)[:n] for t in (c.k, c.v))
        last = np.arange(end - first)[:, None] + n - (end - first)
        for h in range(c.num_heads_q) if heads is None else heads:
            score = np.where(np.arange(n) <= last, c.q[first:end, h] @ k[:, h // group].T * c.softmax_scale, -np.inf)
            top = score.max(axis=1, keepdims=True)
            p = np.exp(score - top)
            total = p.sum(axis=1, keepdims=True)
            out[first:end, h] = p @ v[:, h // group] / total
            c.lse[h, first:end] = (top + np.log(total))[:, 0]


def half(c):
    """Half of the heads, the others left as they are."""
    compute(c, range(c.num_heads_q // 2))
