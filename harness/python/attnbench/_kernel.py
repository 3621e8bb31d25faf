"""Decorators that make kernels of functions."""
from __future__ import annotations

import difflib
import inspect
from typing import Any, Callable, Sequence

from ._call import Call
from ._contract import FEATURES, DeviceKind, DType, Feature, KernelFlag, Op

_DEVICES = {"cpu": DeviceKind.CPU, "cuda": DeviceKind.CUDA}
_TYPES = {t.name.lower(): t for t in DType}
#: Types of P: also that of V or q, whatever it is in a launch (kTypeOfV, kTypeOfQ of harness/launch/python.h).
_TYPES_OF_P = {**_TYPES, "input": -1, "q": -2}

#: Ops that declare a type of P.
_WITH_P = (Op.ATTENTION, Op.ATTENTION_BACKWARD)

#: Unit roundoff of operands (Numerics::input_roundoff): TF32 cuts a float32 off after 10 digits of 23.
_INPUTS = {"fp32": 0.0, "tf32": 2**-10}

#: What a kernel serves, and what never reaches it.
_PHASES = {"decode": KernelFlag.SERVES_DECODE, "prefill": KernelFlag.SERVES_PREFILL, "append": KernelFlag.SERVES_APPEND}
_NEVER = {"empty_rows": KernelFlag.NO_EMPTY_ROWS, "idle_sequences": KernelFlag.NO_IDLE_SEQUENCES,
          "short_kv": KernelFlag.NO_SHORT_KV, "strides": KernelFlag.DENSE_INPUTS}

#: Kernels in the order of their declaration, for the file that is being loaded.
declared: list[Kernel] = []


def _choice(option, value, known):
    if value not in known:
        near = difflib.get_close_matches(str(value), known, 1, 0.8)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"{option}={value!r}: {meant}one of {', '.join(sorted(known))} required")
    return known[value] if isinstance(known, dict) else value


def _tuple(value):
    return value if value is None or isinstance(value, (tuple, list, range)) else (value,)


def _words(values):
    """8, 16..256 for range(8, 257, 8)."""
    if isinstance(values, range) and len(values) > 3:
        return f"{values[0]}, {values[1]}..{values[-1]}" if values.step != 1 else f"{values[0]}..{values[-1]}"
    return ", ".join(map(str, values))


class Kernel:
    """A kernel: the function, and what is declared about it. Calling it calls the function."""

    def __init__(self, function, op, options):
        self.function, self.op = function, op
        self.__doc__, self.__name__ = function.__doc__, function.__name__
        self.name = options.pop("name") or function.__name__
        self.file = inspect.getsourcefile(function)
        words = options.pop("features")
        bits = Feature(0)
        for word in words.split() if isinstance(words, str) else words:
            bits |= _choice("features", word, FEATURES)
        self.features = bits
        self.devices = [_choice("device", d, _DEVICES) for d in _tuple(options.pop("device"))]
        self.p = _choice("p", options.pop("p"), _TYPES_OF_P if op == Op.ATTENTION else {**_TYPES, "input": -1} if op in _WITH_P else _TYPES)
        self.acc = _choice("acc", options.pop("acc"), _TYPES)
        self.exp_rel_err = float(options.pop("exp_rel_err"))
        self.mma_roundoff, self.p_scale = float(options.pop("mma_roundoff")), float(options.pop("p_scale"))
        self.input_roundoff = _choice("acc_input", options.pop("acc_input"), _INPUTS)
        if self.input_roundoff and op != Op.ATTENTION:
            raise ValueError('acc_input="tf32" is an option of attention only')
        self.head_grads = _choice("head_grads", options.pop("head_grads"), {**_TYPES, "input": -1})
        if self.head_grads != DType.FP32 and op != Op.ATTENTION_BACKWARD:
            raise ValueError("head_grads is an option of attention_backward only")
        self.flags = KernelFlag(0)
        for flag in (KernelFlag.DETERMINISTIC, KernelFlag.BATCH_INVARIANT, KernelFlag.PAGING_INVARIANT):
            if options.pop(flag.name.lower()):
                self.flags |= flag
        self._take_outputs(op, options)
        self._take_served(op, options)
        self.head_dim, self.block_size = _tuple(options.pop("head_dim")), _tuple(options.pop("block_size"))
        self.min_compute_capability = options.pop("min_compute_capability")
        self.summary = options.pop("summary") or (inspect.getdoc(function) or "a kernel in Python").split("\n")[0]

    def _take_outputs(self, op, options):
        """returns=, lse=, padding= and lengths=: what the kernel does otherwise than the contract says."""
        self.returns = options.pop("returns")
        words = options.pop("lse").split()
        for word in words:
            _choice("lse", word, ("natural", "base2", "none", "token_major", "plus_inf"))
        self.lse_base2, self.lse_token_major = "base2" in words, "token_major" in words
        if self.lse_token_major and not self.returns:
            raise ValueError('lse="token_major" needs returns=True: c.lse is (heads, rows)')
        if self.returns or self.lse_base2:
            self.flags |= KernelFlag.RETURNS_OUTPUTS
        if "plus_inf" in words:
            self.flags |= KernelFlag.INF_EMPTY_LSE
        self.gives_lse = "none" not in words
        if not self.gives_lse:
            self.flags |= KernelFlag.NO_LSE
        if _choice("padding", options.pop("padding"), {"nan": False, "finite": True}):
            self.flags |= KernelFlag.FINITE_PADDING
        if _choice("lengths", options.pop("lengths"), {"device": False, "host": True}):
            self.flags |= KernelFlag.HOST_LENGTHS
        if self.flags & (KernelFlag.RETURNS_OUTPUTS | KernelFlag.NO_LSE | KernelFlag.INF_EMPTY_LSE) and op != Op.ATTENTION:
            raise ValueError("returns and lse are options of attention only")
        if self.flags & KernelFlag.HOST_LENGTHS and op not in _WITH_P:
            raise ValueError("lengths is an option of attention and attention_backward only")
        if self.flags & KernelFlag.FINITE_PADDING and op not in (*_WITH_P, Op.MERGE_STATES):
            raise ValueError("padding is an option of attention, attention_backward and merge_states only")

    def _take_served(self, op, options):
        """serves= and never=: cases that the kernel is not given."""
        serves, never = options.pop("serves").split(), options.pop("never").split()
        phases = _PHASES if op in _WITH_P else {"merge": KernelFlag.NO_EMPTY_ROWS} if op == Op.MERGE_STATES else {}
        for option, words in (("serves", serves), ("never", never)):
            if words and not phases:
                raise ValueError(f"{option} is an option of attention, attention_backward and merge_states only")
        if op == Op.MERGE_STATES and {"idle_sequences", "short_kv"} & {*never}:
            raise ValueError('never="idle_sequences short_kv" is for attention and attention_backward only')
        for word in serves:
            self.flags |= _choice("serves", word, phases)
        for word in never:
            self.flags |= _choice("never", word, _NEVER)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self):
        return f"<attnbench kernel {self.name} ({self.op.name.lower()}) of {self.file}>"

    @property
    def shapes(self):
        """Supported head_dim and block_size in words."""
        def words(key, values):
            return f"any {key}" if values is None else f"{key} {_words(values)}"
        if self.op in (Op.MERGE_STATES, Op.ATTENTION_BACKWARD):
            return words("head_dim", self.head_dim)
        return f"{words('head_dim', self.head_dim)}, {words('block_size', self.block_size)}"

    def refusal(self, params):
        """Why the kernel does not do a launch of these parameters; None: it does."""
        for key in ("head_dim", "block_size"):
            allowed, given = getattr(self, key), getattr(params, key, None)
            if key == "block_size" and not (given and params.features & Feature.PAGED_KV):
                continue
            if allowed is not None and given not in allowed:
                return f"{self.name}: {key} {_words(allowed)} required, given {given}"
        return None


def _decorator(op: Op):
    def decorate(features: str | Sequence[str], *, device: str | Sequence[str] = "cuda", name: str | None = None,
                 head_dim: int | Sequence[int] | None = None, block_size: int | Sequence[int] | None = None, p: str = "fp32",
                 acc: str = "fp32", exp_rel_err: float = 2**-22, mma_roundoff: float = 0, p_scale: float = 1, head_grads: str = "fp32",
                 deterministic: bool = False, batch_invariant: bool = False, paging_invariant: bool = False,
                 returns: bool = False, lse: str = "natural", padding: str = "nan", lengths: str = "device",
                 serves: str = "", never: str = "", acc_input: str = "fp32",
                 min_compute_capability: int = 0, summary: str | None = None) -> Callable[[Callable[[Call], Callable[[], Any]]], Kernel]:
        options = dict(locals())
        if callable(features):
            raise TypeError(f'{op.name.lower()} needs features: @attnbench.{op.name.lower()}("packed bf16")')

        def declare(function: Callable[[Call], Callable[[], Any]]) -> Kernel:
            kernel = Kernel(function, op, dict(options))
            declared.append(kernel)
            return kernel
        return declare
    decorate.__name__ = decorate.__qualname__ = op.name.lower()
    decorate.__doc__ = f"""Makes a kernel of op {op.name.lower()} of a function.

    The function gets a `Call` once per case and returns the launch, a function without arguments, which is
    timed. It may raise `Unsupported`.

    features: what a launch may use, names of `attnbench kernels` separated by blanks: "packed causal bf16".
        A missing name skips cases; a name too many gives wrong results.
    device: "cuda", "cpu" or both.
    head_dim, block_size: the values that it can do (default: any).
    p, acc: type of P before P.V, and type of the accumulators: fp32, bf16, fp16. p="input": the type of V, as
        p.to(v.dtype) gives; p="q": that of q, where V in fp8 or int8 is dequantised before P.V. The tolerance follows.
    acc_input: attention: "tf32" if q, k, P and v in fp32 are multiplied as TF32, as tl.dot does by default. It has no
        effect in bf16 and fp16.
    exp_rel_err: relative error of its exp.
    mma_roundoff: 2**-13 for products in e4m3 on Hopper, which sum with fewer digits than fp32.
    p_scale: the least weight that a row's heaviest key has in type p, such as 16 where P is in e4m3.
    head_grads: attention_backward: type to which dk and dv of each query head are rounded before the heads of a
        group are summed; "input": that of q. fp32: they are not rounded.
    deterministic: two launches give the same bits; batch_invariant: other sequences do not change a sequence's
        result; paging_invariant: nor does it change whether keys are packed or in pages. They are checked bit for
        bit where invariants run.
    returns: the launch returns O, a tensor (total_q, heads, head_dim_v), or the tuple (O, LSE). They are judged
        where they lie; bringing them to c.out and c.lse is not timed.
    lse: "natural", "base2" or "none" (it gives none, and none is judged). With "token_major" the returned LSE is
        (total_q, heads), else (heads, total_q). "plus_inf": the LSE of a row without keys is +inf, as FlashAttention
        writes it, not -inf. "base2 token_major plus_inf" is all three.
    padding: "finite" if the kernel may not meet NaN where nothing must be read; merge_states: in O of states without
        keys. Finite numbers lie there then, so less is checked; the record says so.
    serves: (instead of `for`, a keyword of Python) "decode": one query per sequence, row b of c.q for sequence b;
        "prefill": as many queries as keys; "append": no more queries than keys; "decode prefill": either. No sequence
        lacks queries, and no row keys. merge_states: "merge": each row has a state with keys. Other cases are skipped,
        and the record says so.
    never: what does not reach the kernel either: "empty_rows" (without keys), "idle_sequences" (without queries),
        "short_kv" (more queries than keys), "strides" (gaps in inputs; partial_lse: strided). Also skips.
    lengths: "host" if the function, and not the launch, reads lengths or tables. The launch is then not repeated with
        others, as a CUDA graph is, and the record says so.
    """
    return decorate


attention = _decorator(Op.ATTENTION)
kv_append = _decorator(Op.KV_APPEND)
merge_states = _decorator(Op.MERGE_STATES)
attention_backward = _decorator(Op.ATTENTION_BACKWARD)
kv_move = _decorator(Op.KV_MOVE)
