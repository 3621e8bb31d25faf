"""A kernel in PyTorch operations, on the CPU or a GPU, to start your own from (harness/python/README.md).

It is correct and slow: a loop over sequences, in float32, with all scores in memory.
"""
import attnbench as ab
import torch


# `features` says what a launch may use, in names of `attnbench kernels`; other cases are skipped. `p` is the
# type to which P is rounded before P.V, and `acc` (default fp32) that of the sums; tolerances follow from both.
@ab.attention(features="packed paged causal seqused_k bf16 fp16 fp32", device=("cpu", "cuda"), p="fp32")
def example(c):
    """a start for one's own in PyTorch: a loop over sequences"""
    # This part runs once per case and is not timed. q, k and v hold NaN until the launch; lengths and block
    # tables are in place, so they may be read here. In a launch, .tolist() or .item() would stall the GPU.
    q, k, v, out, lse, block_table = c.torch("q k v out lse block_table")
    cu_q = c.torch("cu_seqlens_q").tolist()
    cu_k = c.torch("cu_seqlens_k").tolist() if c.cu_seqlens_k else None
    used = c.torch("seqused_k").tolist() if c.seqused_k else None
    group = c.num_heads_q // c.num_heads_kv  # query head h reads KV head h // group

    def rows(cache, b, n):
        """The first n rows of K or V of sequence b as (num_heads_q, n, head_dim) in float32."""
        if block_table is None:
            x = cache[cu_k[b]:cu_k[b] + n]
        else:
            blocks = block_table[b, :-(-n // c.block_size)]  # entries after the last block are junk
            x = cache.index_select(0, blocks).flatten(0, 1)[:n]
        return x.float().repeat_interleave(group, dim=1).transpose(0, 1)

    def attend(b):
        first, end = cu_q[b], cu_q[b + 1]
        n = used[b] if used else cu_k[b + 1] - cu_k[b]
        score = q[first:end].float().transpose(0, 1) @ rows(k, b, n).transpose(1, 2) * c.softmax_scale
        if c.causal:  # the last query sees the last key
            visible = torch.ones(end - first, n, dtype=torch.bool, device=q.device).tril(n - (end - first))
            score = score.masked_fill(~visible, -torch.inf)
        total = torch.logsumexp(score, dim=2)  # natural log; -inf for a row that sees no key, and its O is 0
        p = torch.softmax(score, dim=2).masked_fill((total == -torch.inf)[:, :, None], 0)
        lse[:, first:end] = total
        out[first:end] = (p @ rows(v, b, n)).transpose(0, 1)

    def launch():  # This part is timed, on the stream of the harness.
        for b in range(c.batch):
            attend(b)
    return launch
