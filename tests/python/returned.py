"""Kernels that return their outputs, or give an LSE otherwise than the contract says. The first ones are correct."""
import attnbench as ab
import numpy as np
from attend import attend, attention, bf16


def kernel(features="packed causal bf16", **options):
    return ab.attention(features, device="cpu", **{"returns": True, **options})


@kernel(deterministic=True)
def returns(c):
    def launch():
        out, lse = attention(c)
        return bf16(out), lse
    return launch


@kernel(lse="base2 token_major")
def other_layouts(c):
    def launch():
        out, lse = attention(c)
        wide = np.zeros((c.num_heads_q, c.total_q, 2 * c.head_dim), np.uint16)  # heads first, gaps between channels
        wide[:, :, ::2] = bf16(out).swapaxes(0, 1)
        return wide[:, :, ::2].swapaxes(0, 1), np.ascontiguousarray(lse.T) / np.float32(np.log(2))
    return launch


def with_inf(out, lse):
    return bf16(out), np.where(np.isneginf(lse), np.float32(np.inf), lse)


@kernel(lse="plus_inf")
def plus_inf(c):
    return lambda: with_inf(*attention(c))


@kernel(lse="base2 token_major plus_inf")
def plus_inf_base2(c):
    def launch():
        out, lse = with_inf(*attention(c))
        return out, np.ascontiguousarray(lse.T) / np.float32(np.log(2))
    return launch


@kernel()
def undeclared_inf(c):
    return lambda: with_inf(*attention(c))


@kernel(lse="plus_inf")
def minus_inf(c):
    def launch():
        out, lse = attention(c)
        return bf16(out), lse
    return launch


@kernel(lse="none")
def no_lse(c):
    return lambda: bf16(attention(c)[0])


@kernel(returns=False, lse="base2")
def writes_base2(c):
    def launch():
        attend(c)
        c.lse.numpy()[:] /= np.float32(np.log(2))
    return launch


@kernel(lse="none")
def returns_its_out(c):
    def launch():
        attend(c)
        return c.numpy("out")
    return launch


def multiplies_padding(c, lengths=None):
    """Decode over whole pages: the rows behind the last key get the weight 0."""
    def launch():
        out = np.zeros(c.out.shape, np.float32)
        for b in range(c.batch):
            n = (lengths or c.seqused_k)[b]
            blocks = c.block_table[b, :-(-n // c.block_size)]
            row = c.cu_seqlens_q[b]
            for h in range(c.num_heads_q):
                k, v = (t[blocks, :, h * c.num_heads_kv // c.num_heads_q].reshape(-1, c.head_dim) for t in (c.k, c.v))
                score = k @ c.q[row, h] * c.softmax_scale
                score[n:] = -np.inf
                p = np.exp(score - score[:n].max())
                out[row, h] = p @ v / p.sum()
        return bf16(out)
    return launch


kernel("paged bf16", name="needs_finite", lse="none", padding="finite")(multiplies_padding)
kernel("paged bf16", name="meets_nan", lse="none")(multiplies_padding)


def keeps_lengths(c):
    return multiplies_padding(c, [c.seqused_k[b] for b in range(c.batch)])


kernel("paged bf16", name="keeps_lengths", lse="none", padding="finite")(keeps_lengths)
kernel("paged bf16", name="says_so", lse="none", padding="finite", lengths="host")(keeps_lengths)


@kernel()
def wrong_shape(c):
    return lambda: (np.zeros((c.total_q, c.num_heads_q * c.head_dim), np.uint16), None)


@kernel(lse="none")
def wrong_type(c):
    return lambda: attention(c)[0]


@kernel()
def forgets_lse(c):
    return lambda: bf16(attention(c)[0])


@kernel()
def returns_nothing(c):
    return lambda: None


@kernel(lse="none")
def returns_q(c):
    return lambda: c.numpy("q")


@kernel(lse="none")
def read_only(c):
    def launch():
        out = bf16(attention(c)[0])
        out.setflags(write=False)
        return out
    return launch


@kernel()
def natural_not_base2(c):
    def launch():
        out, lse = attention(c)
        return bf16(out), lse / np.float32(np.log(2))
    return launch


@kernel(lse="none")
def keeps_result(c):
    kept = []

    def launch():
        if not kept:
            kept.append(bf16(attention(c)[0]))
        return kept[0]
    return launch
