"""A correct kernel, which imports a module of its folder."""
import attnbench as ab
from attend import attend


@ab.attention("packed causal bf16 fp32", device="cpu", deterministic=True)
def mine(c):
    """attention in NumPy, for tests"""
    return lambda: attend(c)
