"""FlashInfer (flashinfer-python): BatchMLAPagedAttentionWrapper. plan() is not timed, run() is."""
import functools

import attnbench as ab

mla = ab.need("flashinfer.mla", "pip install flashinfer-python")
import torch

import call_views


@functools.cache
def _workspace(device):
    """Scratch of the size that its documentation recommends. Launches follow each other, so all wrappers share it."""
    return torch.zeros(128 << 20, dtype=torch.uint8, device=device)


# mla: LSE (total_q, heads) in base 2; exp is ex2.approx, P is converted to the type of V.
@ab.attention("paged causal head_dim_v v_is_k_view bf16 fp16", head_dim=576, p="input", returns=True, lse="base2 token_major",
              padding="finite", lengths="host", min_compute_capability=80)
def flashinfer_mla(c):
    """FlashInfer: BatchMLAPagedAttentionWrapper"""
    call_views.refuse_empty(c)
    if c.num_heads_kv != 1 or c.head_dim_v != 512 or not c.has("v_is_k_view"):
        raise ab.Unsupported("one KV head, and V as the first 512 channels of K, required")
    (q, k, cu_q, used), (first, blocks, _) = c.torch("q k cu_seqlens_q seqused_k"), call_views.pages(c)
    wrapper = mla.BatchMLAPagedAttentionWrapper(_workspace(q.device))
    wrapper.plan(cu_q, first.to(q.device), blocks, used, c.num_heads_q, 512, 64, c.block_size, bool(c.causal), c.softmax_scale,
                 q.dtype, k.dtype)
    return lambda: wrapper.run(q[..., :512], q[..., 512:], k[:, :, 0, :512], k[:, :, 0, 512:], return_lse=True)
