"""right.py with an error in O."""
import attnbench as ab
from attend import attend


@ab.attention("packed causal bf16 fp32", device="cpu")
def mine(c):
    return lambda: attend(c, error=0.5)
