"""Kernels whose first results are right, or would be a little later."""
import threading
import time

import attnbench as ab
import numpy as np
from attend import attend


def later(c):
    time.sleep(0.02)
    attend(c)


@ab.attention("packed causal bf16", device="cpu")
def builds_slowly(c):
    """correct; what precedes the launch is not timed"""
    time.sleep(0.05)
    return lambda: attend(c)


@ab.attention("packed causal bf16", device="cpu")
def works_in_a_thread(c):
    """returns at once; its thread does the work"""
    return lambda: threading.Thread(target=later, args=(c,)).start()


@ab.attention("packed causal bf16", device="cpu")
def caches(c):
    """keeps the results of its first launch"""
    kept = []

    def launch():
        if not kept:
            attend(c)
            kept.extend((c.numpy("out").copy(), c.numpy("lse").copy()))
        c.numpy("out")[:], c.numpy("lse")[:] = kept
    return launch


@ab.attention("packed causal bf16", device="cpu")
def goes_on(c):
    """its thread works until the process ends, so it is the last of this file"""
    def work():
        numbers = np.ones(100_000)
        while True:
            np.sin(numbers)  # without the interpreter's lock

    def launch():
        if threading.active_count() == 1:
            threading.Thread(target=work, daemon=True).start()
        attend(c)
    return launch
