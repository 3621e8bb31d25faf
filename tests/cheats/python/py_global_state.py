"""Counts launches in a global variable, and computes nothing from the fifth on.
Source: gpu-mode/reference-kernels #104 (work is done in some calls and skipped in the timed others)."""
from numpy_attention import cheat, compute

launches = {}


@cheat
def py_global_state(c):
    def launch():
        seen = launches.setdefault(c.out.pointer, [])
        if len(seen) == 4:
            return
        compute(c)
        seen.append(1)
    return launch
