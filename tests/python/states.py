"""Kernels that go wrong in one way each; the first and the last are correct."""
import ctypes
import os
import sys

import attnbench as ab
from attend import attend


def kernel(function):
    return ab.attention("packed causal bf16", device="cpu")(function)


@kernel
def first(c):
    return lambda: attend(c)


@kernel
def wrong(c):
    return lambda: attend(c, error=0.5)


@kernel
def silent(c):
    return lambda: None


@kernel
def raises_in_build(c):
    raise ValueError("no build of this")


@kernel
def raises_in_launch(c):
    def launch():
        raise ValueError("no launch of this")
    return launch


@kernel
def speaks_long(c):
    raise ValueError("ü" * 300 + "\0\ud800")


@kernel
def unsupported(c):
    raise ab.Unsupported("head_dim 128 required")


@kernel
def no_callable(c):
    attend(c)


@kernel
def prints(c):
    print("o" * 3_000_000)
    print("e" * 3_000_000, file=sys.stderr)
    return lambda: attend(c)


@kernel
def exits(c):
    return lambda: sys.exit(3)


@kernel
def ends(c):
    return lambda: os._exit(7)


@kernel
def crashes(c):
    return lambda: ctypes.string_at(0)


@kernel
def loops(c):
    def launch():
        while True:
            pass
    return launch


@ab.attention("packed causal bf16", device="cpu", head_dim=(64, 128))
def only_64(c):
    return lambda: attend(c)


@ab.attention("packed causal bf16", device=("cpu", "cuda"))
def last(c):
    return lambda: attend(c)
