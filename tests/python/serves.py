"""Kernels that say what they serve, what never reaches them, and with what their products are computed. The first ones
are correct; those named only_... are right in what they serve alone."""
import attnbench as ab
import numpy as np
from attend import attend, attention


@ab.attention("packed causal bf16", device="cpu", serves="decode")
def only_decode(c):
    assert c.max_seqlen_q == 1 and c.total_q == c.batch > 0, "one query per sequence"
    return lambda: attend(c)


@ab.attention("packed causal bf16", device="cpu", serves="prefill decode")
def only_prefill_and_decode(c):
    return lambda: attend(c)


@ab.attention("packed causal bf16", device="cpu", never="empty_rows idle_sequences short_kv strides")
def only_plain(c):
    def launch():
        assert c.q.strides == (c.num_heads_q * c.head_dim, c.head_dim, 1) and min(c.cu_seqlens_k[1:] - c.cu_seqlens_k[:-1]) > 0
        attend(c)
    return launch


def merge(c):
    """O and LSE of rows that have a state with keys."""
    lse, states = np.moveaxis(c.partial_lse[:], 0, -1), np.moveaxis(c.partial_out[:], 0, -2)
    top = lse.max(-1, keepdims=True)
    w = np.exp(lse - top)
    total = w.sum(-1, keepdims=True)
    return ((w / total)[..., None] * states).sum(-2), (np.log(total) + top)[..., 0].T


@ab.merge_states("fp32 bf16", device="cpu", serves="merge", padding="finite", never="strides")
def only_merges(c):
    def launch():
        assert c.partial_lse.strides[0] == c.num_rows * c.num_heads
        c.out[:], c.out_lse[:] = merge(c)  # a state without keys has the weight 0, and its O must be finite
    return launch


@ab.merge_states("fp32 bf16", device="cpu", serves="merge")
def meets_nan(c):
    def launch():
        c.out[:], c.out_lse[:] = merge(c)
    return launch


@ab.attention("packed causal bf16 e4m3_kv", device="cpu", p="q", summary="its arithmetic is asked for, and it refuses to launch")
def rounds_p_like_q(c):
    return lambda: None


def tf32(x):
    """float32 without its last 13 digits."""
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) & 0xffffe000).view(np.float32)


def attend_tf32(c):
    for b in range(c.batch):
        rows, keys = (slice(cu[b], cu[b + 1]) for cu in (c.cu_seqlens_q, c.cu_seqlens_k))
        for h in range(c.num_heads_q):
            kv = h * c.num_heads_kv // c.num_heads_q
            score = tf32(c.q[rows, h]) @ tf32(c.k[keys, kv]).T * np.float32(c.softmax_scale)
            top = score.max(axis=1, keepdims=True)
            p = np.exp(score - top)
            total = p.sum(axis=1, keepdims=True)
            c.out[rows, h] = tf32(p) @ tf32(c.v[keys, kv]) / total
            c.lse[h, rows] = (np.log(total) + top)[:, 0]


@ab.attention("packed fp32 bf16", device="cpu", acc_input="tf32")
def says_tf32(c):
    return lambda: attend_tf32(c)


@ab.attention("packed fp32", device="cpu")
def hides_tf32(c):
    return lambda: attend_tf32(c)
