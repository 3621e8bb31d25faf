"""Replaces functions by which a judge in Python would compare and wait, and computes half of the heads after four
launches.
Source: gpu-mode/reference-kernels #162 (patched functions of torch)."""
import sys

import numpy as np
from numpy_attention import cheat, compute, half

np.allclose = np.array_equal = lambda *a, **k: True
np.testing.assert_allclose = lambda *a, **k: None
if "torch" in sys.modules:
    sys.modules["torch"].allclose = lambda *a, **k: True
    sys.modules["torch"].cuda.synchronize = lambda *a, **k: None


@cheat
def py_patches_functions(c):
    launches = []

    def launch():
        launches.append(1)
        compute(c) if len(launches) <= 4 else half(c)
    return launch
