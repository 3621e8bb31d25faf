"""Attention in NumPy for kernels of this folder: packed, causal or not."""
import numpy as np


def attention(c, error=0.0):
    """O (total_q, heads, head_dim), plus `error`, and LSE (heads, total_q), in float32."""
    out = np.zeros((c.total_q, c.num_heads_q, c.head_dim), np.float32)
    lse = np.zeros((c.num_heads_q, c.total_q), np.float32)
    for b in range(c.batch):
        first, end = c.cu_seqlens_q[b], c.cu_seqlens_q[b + 1]
        keys = slice(c.cu_seqlens_k[b], c.cu_seqlens_k[b + 1])
        n = keys.stop - keys.start
        hidden = np.arange(n) > np.arange(end - first)[:, None] + n - (end - first) if c.causal else False
        for h in range(c.num_heads_q):
            kv = h * c.num_heads_kv // c.num_heads_q
            score = np.where(hidden, -np.inf, c.q[first:end, h] @ c.k[keys, kv].T * c.softmax_scale)
            top = score.max(axis=1, initial=-np.finfo(np.float32).max, keepdims=True)
            p = np.exp(score - top)
            total = p.sum(axis=1, keepdims=True)
            out[first:end, h] = p @ c.v[keys, kv] / np.maximum(total, 1e-30) + error
            with np.errstate(divide="ignore"):
                lse[h, first:end] = (np.log(total) + np.where(total > 0, top, 0))[:, 0]
    return out, lse


def attend(c, error=0.0):
    """Writes O and LSE of the rows of sequences; c.out has further rows if the batch is shorter than planned."""
    out, lse = attention(c, error)
    rows = slice(c.cu_seqlens_q[0], c.cu_seqlens_q[c.batch])
    c.out[rows] = out[rows]
    c.lse[:, rows] = lse[:, rows]


def bf16(x):
    """The bits of x in bf16, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
