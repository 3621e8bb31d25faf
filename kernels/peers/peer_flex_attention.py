"""PyTorch: flex_attention, compiled in the first launch on a GPU. Packed sequences are one long one under a mask of blocks."""
import attnbench as ab

flex = ab.need("torch.nn.attention.flex_attention", "pip install 'torch>=2.7'")
import torch
import torch._dynamo

import call_views

# Each case compiles anew. Past its limits PyTorch would run the operations one by one, with other rounding.
for _limit in ("recompile_limit", "accumulated_recompile_limit"):
    setattr(torch._dynamo.config, _limit, 1 << 20)
_compiled = torch.compile(flex.flex_attention, dynamic=False)
_compiled_mask = torch.compile(flex.create_block_mask, dynamic=False)
# Without it queries of fewer than 128 rows go to flex_decoding, which has no choice for some shapes.
_OPTIONS = {"FORCE_USE_FLEX_ATTENTION": True}
# Versions with AuxRequest call return_lse deprecated.
_LSE = {"return_aux": flex.AuxRequest(lse=True)} if hasattr(flex, "AuxRequest") else {"return_lse": True}


# inductor/kernel/flex: P is converted to the type of V, exp is ex2.approx, LSE in natural logarithm; a row without keys has
# O = 0 and LSE = -inf. A tile of the mask that is visible in part multiplies P = 0 by rows of other sequences.
@ab.attention("packed causal top_left window softcap alibi bf16 fp16", device=("cuda", "cpu"), head_dim=(16, 32, 64, 128, 256),
              p="input", returns=True, padding="finite", lengths="host", min_compute_capability=80)
def flex_attention(c):
    """torch.nn.attention.flex_attention, on a GPU compiled; mask and tables of sequences are not timed"""
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in c.torch("q k v"))  # (1, heads, rows, head_dim)
    cu_q, cu_k, used, slopes = c.torch("cu_seqlens_q cu_seqlens_k seqused_k alibi_slopes")
    call_views.refuse_empty(c)
    if c.total_k == 0:
        raise ab.Unsupported("a key required")
    if used is not None:
        raise ab.Unsupported("lengths of the keys by cu_seqlens_k required")
    # The sequence of each row, and for a query the key on its diagonal, as a row of K.
    def sequence(cumulative, n):
        rows = torch.arange(n, device=q.device)
        return torch.where(rows < cumulative[0], -1, torch.searchsorted(cumulative[1:].contiguous(), rows, right=True)).int()
    seq_q, seq_k = sequence(cu_q, c.total_q), sequence(cu_k, c.total_k)
    of = seq_q.clamp(0, c.batch - 1).long()
    ends = 0 if c.has("top_left") else 1  # of queries and keys, the diagonal's
    diagonal = torch.arange(c.total_q, device=q.device) - cu_q[of + ends] + cu_k[of + ends]
    left, right, cap = c.window_left, 0 if c.causal else c.window_right, c.softcap

    def visible(b, h, i, j):
        seen = (seq_q[i] == seq_k[j]) & (seq_q[i] >= 0)
        if left >= 0:
            seen = seen & (j >= diagonal[i] - left)
        if right >= 0:
            seen = seen & (j <= diagonal[i] + right)
        return seen

    def score_of(score, b, h, i, j):
        if cap:
            score = cap * torch.tanh(score / cap)
        if slopes is not None:
            distance = (diagonal[i] - j).abs().float()
            slope = slopes[h] if slopes.dim() == 1 else slopes[of[i], h]
            score = score - slope * (distance.sqrt() if c.alibi_sqrt else distance)
        return score

    cuda = c.device == "cuda"
    mask = (_compiled_mask if cuda else flex.create_block_mask)(visible, None, None, c.total_q, c.total_k, device=q.device)
    attend, score_mod = _compiled if cuda else flex.flex_attention, score_of if cap or slopes is not None else None

    def launch():
        out, lse = attend(q, k, v, score_mod=score_mod, block_mask=mask, scale=c.softmax_scale,
                          enable_gqa=c.num_heads_q != c.num_heads_kv, kernel_options=_OPTIONS, **_LSE)
        return out[0].transpose(0, 1), getattr(lse, "lse", lse)[0]
    return launch
