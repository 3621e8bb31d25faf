"""What several peers make of a call before its launch: lengths on the host, views, refusals.

Lengths are read once per case, so a launch that is repeated with other lengths (the check `replay`) does not see them.
"""
import attnbench as ab
import torch


def _steps(cumulative):
    values = cumulative.tolist()
    return [b - a for a, b in zip(values, values[1:])]


def lengths(c):
    """Lengths of the queries and of the keys of each sequence, lists of ints."""
    cu_q, cu_k = c.torch("cu_seqlens_q cu_seqlens_k")
    used = c.torch("seqused_k") if c.op == "attention" else None
    return _steps(cu_q), _steps(cu_k) if used is None else used.tolist()


def new_lengths(c):
    """Number of appended keys of each sequence, a list of ints."""
    return _steps(c.torch("cu_seqlens_new"))


def window(c):
    """(left, right) as in flash_attn: -1 is unlimited, and a causal mask is right = 0."""
    return c.window_left, 0 if c.causal else c.window_right


def window_of_flash_2(c):
    """window(c) for FlashAttention 2. Under a causal mask its ALiBi is slope * column, which gives another LSE than a bias of
    the distance (mask.h). A window that holds all keys takes the branch with the distance."""
    left, right = window(c)
    return (max(0, c.max_seqlen_k - 1), right) if c.has("alibi") and left < 0 and right == 0 else (left, right)


def refuse_empty(c):
    """Refuses a case without queries, for which libraries have no grid."""
    if c.total_q == 0:
        raise ab.Unsupported("a query required")


def refuse_blind_queries(c, why):
    """Refuses a case in which a query sees no key, or in which there is none."""
    refuse_empty(c)
    right = window(c)[1]
    for len_q, len_k in zip(*lengths(c)):
        if len_q > 0 and (len_k == 0 or (right >= 0 and not c.has("top_left") and len_k + right < len_q)):
            raise ab.Unsupported(f"a query sees no key, and {why}")


def refuse_lead_rows(c):
    """Refuses packed rows that belong to no sequence, in front of the first one."""
    for name in ("cu_seqlens_q", "cu_seqlens_k"):
        cumulative = c.torch(name)
        if cumulative is not None and int(cumulative[0]) != 0:
            raise ab.Unsupported(f"{name}[0] = 0 required, given {int(cumulative[0])}")


def block_table(c):
    """The block table, or None. With a window its entries left of all windows are junk, which no engine has, and kernels
    whose tiles begin there follow them; so a copy names some block of the pool instead."""
    table = c.torch("block_table")
    return table if table is None or not c.has("window") else table.clamp(0, c.num_blocks - 1)


def pages(c):
    """Where each sequence begins in the list of all blocks, that list, and lengths of the last blocks, as FlashInfer has them."""
    if c.k.strides != c.v.strides or c.batch == 0:
        raise ab.Unsupported("a sequence, and K and V of the same strides, required")
    counts, table, first, blocks = lengths(c)[1], block_table(c), [0], []
    for row, n in zip(table, counts):
        blocks.append(row[:-(-n // c.block_size)])
        first.append(first[-1] + len(blocks[-1]))
    last = [(n - 1) % c.block_size + 1 if n else 0 for n in counts]
    return torch.tensor(first, dtype=torch.int32), torch.cat(blocks), torch.tensor(last, dtype=torch.int32)


def require_softcap(c, other):
    """For kernels whose tanh is approximate: claims of other launches stay those of the kernel `other`."""
    if not c.softcap:
        raise ab.Unsupported(f"{other} is the kernel without a softcap")


def refuse_left_padding(c):
    if c.cache_leftpad is not None:
        raise ab.Unsupported("left padding: the library counts it in a sequence's length")


def same(values, what):
    """The one value of a list; refuses lists of several, and zero."""
    if len(set(values)) != 1 or values[0] == 0:
        raise ab.Unsupported(f"{what} of one length required, given {min(values, default=0)} to {max(values, default=0)}")
    return values[0]


def queries(c):
    """q as (batch, length, heads, head_dim), a view."""
    refuse_lead_rows(c)
    return c.torch("q").unflatten(0, (c.batch, same(lengths(c)[0], "queries")))


def one_length(c):
    """q, K and V as (batch, length, heads, channels), views of packed tensors."""
    len_k = same(lengths(c)[1], "keys")
    return queries(c), *(x[:c.batch * len_k].unflatten(0, (c.batch, len_k)) for x in c.torch("k v"))


def rows(out):
    """O of (batch, length, heads, channels) as (total_q, heads, channels)."""
    return out.reshape(-1, *out.shape[2:])


def rows_of_lse(lse):
    """LSE of (batch, heads, length) as (heads, total_q): a view if the batch or the length is 1, else a copy."""
    return lse.transpose(0, 1).reshape(lse.shape[1], -1)


def slots(c):
    """Rows of all keys in a paged cache seen as (rows, heads, channels), and where each sequence's begin, as SGLang has them."""
    rows, first = [], [0]
    for table, n in zip(block_table(c).long(), lengths(c)[1]):
        keys = torch.arange(n, device=table.device)
        rows.append(table[keys // c.block_size] * c.block_size + keys % c.block_size)
        first.append(first[-1] + n)
    return torch.cat(rows), torch.tensor(first, dtype=torch.int32, device=rows[0].device)


def pool(c, names="k v"):
    """K and V of a paged cache as (rows, heads, channels), views; refuses pools with gaps between blocks."""
    k, v = c.torch(names)
    for x in (k, v):
        if x.stride(0) != x.shape[1] * x.stride(1):
            raise ab.Unsupported("blocks that follow each other without gaps required")
    return k.flatten(0, 1), v.flatten(0, 1)


def new_keys(c):
    """For the keys at the queries' positions and those before: rows in the pool, and where each sequence's older ones begin."""
    (rows, first), (len_q, len_k) = slots(c), lengths(c)
    of = [rows[a:a + n] for a, n in zip(first.tolist(), len_k)]
    older = torch.tensor([0] + [n - m for m, n in zip(len_q, len_k)], dtype=torch.int32, device=rows.device).cumsum(0, dtype=torch.int32)
    return torch.cat([r[n - m:] for r, m, n in zip(of, len_q, len_k)]), torch.cat([r[:n - m] for r, m, n in zip(of, len_q, len_k)]), older


def require_scale(c):
    """For kernels that have no argument for the factor of scores."""
    if abs(c.softmax_scale * c.head_dim ** 0.5 - 1) > 1e-6:
        raise ab.Unsupported(f"softmax_scale 1 / sqrt(head_dim) required, given {c.softmax_scale:g}")


def require_one_cu(c):
    """For kernels that take one table of starts for queries and keys."""
    if c.torch("cu_seqlens_q").tolist() != c.torch("cu_seqlens_k").tolist():
        raise ab.Unsupported("cu_seqlens_q = cu_seqlens_k required")


def left_window(c, least=1):
    """(left, whether the mask is causal) for kernels whose window is to the left of a causal mask, of `least` keys or more."""
    left, right = window(c)
    if right > 0 or 0 <= left < least or (left >= 0 and right != 0):
        raise ab.Unsupported(f"a window of at least {least} keys to the left, under a causal mask, required")
    return left, right == 0
