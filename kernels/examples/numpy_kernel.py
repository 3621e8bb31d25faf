"""A kernel in NumPy for the cpu device, to start your own from (harness/python/README.md)."""
import attnbench as ab
import numpy as np


# `features` says what a launch may use, in names of `attnbench kernels`; other cases are skipped. `p` is the
# type to which P is rounded before P.V, and `acc` (default fp32) that of the sums; tolerances follow from both.
@ab.attention(features="packed paged causal seqused_k bf16 fp16 fp32", device="cpu", p="fp32", deterministic=True)
def example(c):
    """a start for one's own in NumPy: a sequence and a head at a time"""
    # This part runs once per case and is not timed. q, k and v hold NaN until the launch. A launch may be
    # repeated with shorter sequences, as a CUDA graph is, so lengths are read in it. An index reads numbers,
    # c.q[row] as float32 whatever the type of q, and writes them.
    group = c.num_heads_q // c.num_heads_kv  # query head h reads KV head h // group

    def rows(cache, b, n):
        """The first n rows of K or V of sequence b: (n, num_heads_kv, head_dim)."""
        if c.block_table is None:
            return cache[c.cu_seqlens_k[b]:c.cu_seqlens_k[b] + n]
        blocks = c.block_table[b, :-(-n // c.block_size)]  # entries after the last block are junk
        return cache[blocks].reshape(-1, c.num_heads_kv, c.head_dim)[:n]

    def attend(b):
        first, end = c.cu_seqlens_q[b], c.cu_seqlens_q[b + 1]
        n = c.seqused_k[b] if c.seqused_k else c.cu_seqlens_k[b + 1] - c.cu_seqlens_k[b]
        k, v = rows(c.k, b, n), rows(c.v, b, n)
        last = np.arange(end - first)[:, None] + n - (end - first)  # the last query sees the last key
        for h in range(c.num_heads_q):
            score = c.q[first:end, h] @ k[:, h // group].T * c.softmax_scale
            if c.causal:
                score = np.where(np.arange(n) <= last, score, -np.inf)
            top = score.max(axis=1, initial=-np.inf, keepdims=True)
            p = np.exp(score - np.where(np.isneginf(top), 0, top))  # -inf - -inf would be NaN
            total = p.sum(axis=1, keepdims=True)
            # A row that sees no key: O = 0, LSE = -inf. The test is total == 0, so a NaN that was read shows in O.
            c.out[first:end, h] = p @ v[:, h // group] / np.where(total == 0, 1, total)
            with np.errstate(divide="ignore"):
                c.lse[h, first:end] = (top + np.log(total))[:, 0]  # natural log

    def launch():  # This part is timed.
        for b in range(c.batch):
            attend(b)
    return launch
