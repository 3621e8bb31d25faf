"""Replaces the clocks of Python.
Source: gpu-mode/reference-kernels #162 (timer patch)."""
import time

from numpy_attention import cheat, compute

for name in ("time", "perf_counter", "monotonic", "process_time", "perf_counter_ns", "monotonic_ns"):
    setattr(time, name, lambda: 0)


@cheat
def py_patches_clock(c):
    return lambda: compute(c)
