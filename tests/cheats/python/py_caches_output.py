"""Keeps what it wrote to an output, and copies it there again.
Source: gpu-mode/reference-kernels #102 (results kept by object identity)."""
import numpy as np
from numpy_attention import cheat, compute

kept = {}


@cheat
def py_caches_output(c):
    def launch():
        if c.out.pointer not in kept:
            compute(c)
            kept[c.out.pointer] = c.out.numpy().copy(), c.lse.numpy().copy()
            return
        out, lse = kept[c.out.pointer]
        np.copyto(c.out.numpy(), out)
        np.copyto(c.lse.numpy(), lse)
    return launch
