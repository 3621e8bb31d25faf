"""Attention kernels in Python, proved and timed by attnbench.

    import attnbench as ab

    @ab.attention(features="packed causal bf16", head_dim=(64, 128), p="bf16")
    def mine(c):                                  # once per case, not timed
        q, k, v, out, lse, cu_q, cu_k = c.torch("q k v out lse cu_seqlens_q cu_seqlens_k")
        return lambda: launch_my_kernel(q, k, v, out, lse, cu_q, cu_k, c.softmax_scale)   # timed

    attnbench run quickstart --plugin mine.py

In a test: `ab.check(mine, case="{batch: 4q512, mask: causal}")`.
"""
from . import _api
from ._api import CheckFailed, check, run
from ._call import Call, Tensor, Unsupported
from ._contract import DType, Feature
from ._kernel import Kernel, attention, attention_backward, kv_append, kv_move, merge_states
from ._need import need

__all__ = ["Call", "CheckFailed", "DType", "Feature", "Kernel", "Tensor", "Unsupported", "attention", "attention_backward", "check", "kv_append", "kv_move", "merge_states", "need", "run"]


def __getattr__(name):
    if name == "__version__":  # the program knows it
        try:
            return _api.version()
        except (OSError, LookupError) as error:
            raise AttributeError(f"attnbench.__version__: the program does not tell it: {error}") from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
