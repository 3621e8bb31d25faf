"""A kernel in PyTorch operations, on the CPU or a GPU, to start your own from (harness/python/README.md).

It is correct and slow: a sequence at a time, padded to the longest, in float32, with all scores in memory.
"""
import attnbench as ab
import torch


# `features` says what a launch may use, in names of `attnbench kernels`; other cases are skipped. `p` is the
# type to which P is rounded before P.V, and `acc` (default fp32) that of the sums; tolerances follow from both.
@ab.attention(features="packed paged causal seqused_k bf16 fp16 fp32", device=("cpu", "cuda"), p="fp32")
def example(c):
    """a start for one's own in PyTorch: a sequence at a time"""
    # This part runs once per case and is not timed. q, k and v hold NaN until the launch. A launch may be
    # repeated with shorter sequences, as a CUDA graph is, so lengths are read in it, by operations on the device:
    # .tolist() and .item() would stall the GPU. The longest lengths, c.max_seqlen_*, are numbers that hold.
    q, k, v, out, lse = c.torch("q k v out lse")
    cu_q, cu_k, used, block_table = c.torch("cu_seqlens_q cu_seqlens_k seqused_k block_table")
    group = c.num_heads_q // c.num_heads_kv  # query head h reads KV head h // group
    i, j = (torch.arange(n, device=q.device) for n in (c.max_seqlen_q, c.max_seqlen_k))  # queries, keys

    def rows(cache, b, n):
        """The rows of K or V of sequence b as (num_heads_q, max_seqlen_k, head_dim): n rows, then zeros."""
        if block_table is None:
            x = cache[torch.where(j < n, cu_k[b] + j, 0)]
        else:
            block = torch.where(j < n, block_table[b, j // c.block_size], 0)  # other entries are junk
            x = cache[block, j % c.block_size]
        x = torch.where((j < n)[:, None, None], x, 0)  # rows that must not be read hold NaN, and 0 * NaN is NaN
        return x.float().repeat_interleave(group, dim=1).transpose(0, 1)

    def attend(b):
        """O and LSE of sequence b, (num_heads_q, max_seqlen_q, head_dim) and (num_heads_q, max_seqlen_q)."""
        len_q = cu_q[b + 1] - cu_q[b]
        n = cu_k[b + 1] - cu_k[b] if used is None else used[b]
        visible = j < n
        if c.causal:  # the last query sees the last key
            visible = visible & (j <= i[:, None] + n - len_q)
        queries = q[(cu_q[b] + i).clamp(max=c.total_q - 1)].float().transpose(0, 1)
        score = queries @ rows(k, b, n).transpose(1, 2) * c.softmax_scale
        score = score.masked_fill(~visible, -torch.inf)
        total = torch.logsumexp(score, dim=2)  # natural log; -inf for a row that sees no key, and its O is 0
        p = torch.softmax(score, dim=2).masked_fill((total == -torch.inf)[:, :, None], 0)
        return p @ rows(v, b, n), total

    def launch():  # This part is timed, on the stream of the harness.
        # The rows after a sequence's last query are overwritten by the next sequence.
        all_o = torch.empty(c.num_heads_q, c.total_q + c.max_seqlen_q, c.head_dim, device=q.device)
        all_lse = torch.empty(c.num_heads_q, c.total_q + c.max_seqlen_q, device=q.device)
        for b in range(c.batch):
            all_o[:, cu_q[b] + i], all_lse[:, cu_q[b] + i] = attend(b)
        token = torch.arange(c.total_q, device=q.device)
        used_row = (token >= cu_q[0]) & (token < cu_q[-1])  # padding tokens keep what they hold
        out.copy_(torch.where(used_row[:, None, None], all_o[:, :c.total_q].transpose(0, 1).to(out.dtype), out))
        lse.copy_(torch.where(used_row, all_lse[:, :c.total_q], lse))
    return launch
