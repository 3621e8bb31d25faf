"""A correct kernel for packed caches with scales for blocks of channels."""
import types

import attnbench as ab
import numpy as np
from attend import attend


def keys_and_values(c):
    """K and V as numbers, (rows, KV heads, channels)."""
    if c.has("e2m1_kv"):
        k, v = (getattr(c, name)[:] * np.repeat(getattr(c, f"{name}_block_scale")[:], 16, -1) * getattr(c, f"{name}_descale")[0, 0]
                for name in ("k", "v"))
        return k, v
    rows, latent = c.numpy("k_rows"), c.head_dim_v
    scales, tail = (np.ascontiguousarray(rows[..., first:end]) for first, end in ((latent, latent + latent // 32), (latent + latent // 32, None)))
    assert np.array_equal(scales.view(np.float32), c.k_block_scale[:]) and np.array_equal(rows[..., :latent], c.numpy("k"))
    tail = (tail.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    assert np.array_equal(tail, c.k_tail[:])
    v = c.k[:] * np.repeat(scales.view(np.float32), 128, -1)
    return np.concatenate([v, tail], -1), v


@ab.attention("packed causal bf16 e2m1_kv e4m3_kv block_scales k_tail v_is_k_view head_dim_v", device="cpu")
def mine(c):
    """attention in NumPy over numbers with scales"""
    def launch():
        k, v = keys_and_values(c)
        fields = {name: getattr(c, name) for name in ("total_q", "num_heads_q", "num_heads_kv", "batch", "cu_seqlens_q", "cu_seqlens_k", "causal",
                                                      "softmax_scale", "q", "out", "lse")}
        attend(types.SimpleNamespace(**fields, k=k, v=v, head_dim=c.head_dim_v))
    return launch
