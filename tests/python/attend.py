"""Attention in NumPy for kernels of this folder: packed, causal or not."""
import numpy as np


def attend(c, error=0.0):
    """Writes O, plus `error`, and LSE."""
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
            c.out[first:end, h] = p @ c.v[keys, kv] / np.maximum(total, 1e-30) + error
            with np.errstate(divide="ignore"):
                c.lse[h, first:end] = (np.log(total) + np.where(total > 0, top, 0))[:, 0]
