"""Forks a process, which has the tensors mapped like its parent and is not stopped with it. It computes each launch when
its inputs arrive; the launch copies the result from shared memory. The process ends with its parent.
No public source known."""
import mmap
import os
import time

from numpy_attention import cheat, compute, np

calls = []  # (call, digest that is done, O, LSE), in shared memory
parent = os.getpid()
helper = None


class Copy:
    """The call with outputs of its own."""

    def __init__(self, c, lse):
        self.c, self.lse = c, lse

    def __getattr__(self, name):
        return getattr(self.c, name)


def shared(shape):
    return np.frombuffer(mmap.mmap(-1, 4 * int(np.prod(shape))), np.float32).reshape(shape)


def digest(c):
    q, k, v = c.numpy("q k v")
    some = [hash(x.reshape(-1)[::n].tobytes()) for x, n in ((q, 1), (k, 61), (v, 61))]
    return np.float32(hash(tuple(some)) % 16777213 + 1)


def help_parent():
    seen = {}
    while os.getppid() == parent:
        for n, (c, done, out, lse) in enumerate(calls):
            try:
                d = digest(c)
                if d != done[0] and seen.get(n) == d:
                    compute(Copy(c, lse), out=out)
                    done[0] = d if digest(c) == d else 0
                seen[n] = d
            except Exception:  # the tensors are those of another case
                pass
        time.sleep(2e-5)
    os._exit(0)


@cheat
def py_forks_helper(c):
    calls.append((c, shared((1,)), shared((c.total_q, c.num_heads_q, c.head_dim)), shared((c.num_heads_q, c.total_q))))
    mine, asked = calls[-1], [0]

    def launch():
        global helper
        asked[0] += 1
        _, done, out, lse = mine
        if asked[0] == 2:  # the tensors of all copies are there: a helper that knows them
            if helper is not None:
                os.kill(helper, 9)
                os.waitpid(helper, 0)
                del calls[:-2]
            helper = os.fork()
            if helper == 0:
                help_parent()
        if done[0] != digest(c):
            return compute(c)
        c.out[:] = out
        c.lse[:] = lse

    return launch
