"""The processes of the interpreter: one that runs the program with kernels of Python files, and one that describes a
file. harness/launch/python.h is the other side."""
import collections
import ctypes
import faulthandler
import gc
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import platform
import sys
import traceback

from . import _kernel
from ._call import Call, Unsupported, use_torch
from ._contract import (ABI_VERSION, PLUGIN_MAGIC, PLUGIN_STRUCTS, Feature, KernelFlag, KernelMessage, KernelStatus,
                        LaunchContext, OpParams, Plugin)
from ._contract import Kernel as KernelTable
from ._need import Missing
from ._returned import Outputs, WrongOutput

#: Packages whose versions stand in the records, if the file has imported them.
_PACKAGES = ("numpy", "torch", "triton", "cupy", "numba", "jax", "cutlass", "tilelang", "helion", "flash_attn", "flashinfer", "vllm",
             "xformers", "sageattention", "flash_mla", "cudnn")
#: Launches that are kept. Copies of a case take turns: at most kMaxRotationCopies of harness/timing/timing.h.
_KEPT = 260

#: Kernel::supports, plan and launch. They get addresses: making pointer objects would double the time of a launch.
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_PARAMS, _STREAM = OpParams.attention.offset, LaunchContext.stream.offset
_LOAD = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(KernelMessage))


class _PythonHost(ctypes.Structure):
    _fields_ = [("load", _LOAD)]


class LoadError(Exception):
    """A file that cannot be loaded; its text is one line. `absent`: what is to be installed (attnbench.need)."""

    def __init__(self, text, absent=""):
        super().__init__(text)
        self.absent = absent


def _where(error, file):
    """The place in `file` that an exception passed, " (FILE:12)"."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f" ({os.path.basename(file)}:{lines[-1]})" if lines else ""


def _one_line(error, file):
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({os.path.basename(error.filename or file)}:{error.lineno})"
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r}){_where(error, file)}"
    text = " ".join(str(error).split())
    if isinstance(error, ModuleNotFoundError):
        return f"{text}{_where(error, file)}; install it for {sys.executable}, or name another interpreter by --python"
    return f"{type(error).__name__}{': ' if text else ''}{text}{_where(error, file)}"


def _print_traceback(error, file):
    """Prints the traceback from the first line of `file` on, if there is one."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace or error.__traceback__)
    sys.stderr.flush()


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the source each time: __pycache__ may hold an earlier source of the same size and second."""

    def get_code(self, fullname):
        return self.source_to_code(self.get_data(self.path), self.path)


#: Modules that earlier files imported from their folders, by name.
_local = {}


def _import_local(module, file):
    """Runs the module, and returns the files that it imported from its own folder, and its own. A file does not
    see local modules of files before it: each may have its own `helper`."""
    folder = pathlib.Path(file).parent
    for name in _local:
        sys.modules.pop(name, None)
    before = set(sys.modules)
    module.__spec__.loader.exec_module(module)
    files = {pathlib.Path(file)}
    for name in set(sys.modules) - before:
        path = pathlib.Path(getattr(sys.modules[name], "__file__", None) or "/")
        if folder in path.parents and "site-packages" not in path.parts:
            files.add(path)
            _local[name] = sys.modules[name]
    for name, earlier in _local.items():
        sys.modules.setdefault(name, earlier)
    return sorted(files)


def _digest(files):
    sum_of = hashlib.blake2b(digest_size=8)
    for name in files:
        data = name.read_bytes()
        sum_of.update(os.fsencode(name.name) + f" {len(data)} ".encode() + data)
    return sum_of.hexdigest()


def load_file(file):
    """Runs the file and returns its kernels and its digest. Raises LoadError."""
    name = "attnbench_plugin_" + hashlib.blake2b(os.fsencode(file), digest_size=8).hexdigest()
    spec = importlib.util.spec_from_file_location(name, file, loader=_Loader(name, file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, os.path.dirname(file))
    before = len(_kernel.declared)
    try:
        files = _import_local(module, file)
    except BaseException as error:
        if isinstance(error, Missing):
            raise LoadError(str(error), error.why) from None
        if not isinstance(error, (SyntaxError, SystemExit)):
            _print_traceback(error, file)
        raise LoadError(_one_line(error, file)) from None
    return [k for k in _kernel.declared[before:] if k.file == file], _digest(files)


def _interprets_triton():
    """Whether Triton kernels of this process run in its interpreter, on a CPU."""
    return "triton" in sys.modules and os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


def _versions():
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        version = getattr(sys.modules.get(package), "__version__", None)
        if version:
            found[package] = str(version)
    return found


def describe(file, descriptor):
    """Writes what the file's kernels are to the descriptor, as JSON (harness/launch/description.h)."""
    faulthandler.enable()  # a crash names the line
    try:
        kernels, digest = load_file(file)
        answer = {"digest": digest, "versions": _versions(), "kernels": [
            {"name": k.name, "summary": k.summary, "shapes": k.shapes, "op": k.op, "device": device, "flags": k.flags,
             "features": k.features, "min_compute_capability": k.min_compute_capability} for k in kernels for device in k.devices]}
    except LoadError as error:
        answer = {"error": str(error), "absent": error.absent}
    with open(int(descriptor), "wb") as out:
        out.write(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))
    sys.stdout.flush()
    os._exit(0)  # threads of libraries may not end


class _Launch:
    """The function that a kernel made for one call, and what its last launch returned."""

    def __init__(self, name, function, outputs):
        self.name, self.function, self.outputs, self.result = name, function, outputs, None
        self.plain = False  # a launch is a call of the function and nothing else

    def look_at(self, result):
        """Says once that returned outputs are ignored."""
        self.plain = True
        if isinstance(result, tuple) and len(result) == 2 or hasattr(result, "shape"):
            print(f"attnbench: note: the launch of {self.name} returned a value, which is ignored without returns=True", file=sys.stderr)

    def run(self, returned):
        """Launches; `returned` is the address of a ReturnedOutputs."""
        if self.outputs is None:
            self.look_at(self.function())
            return
        self.result = self.function()  # kept until the next launch: the harness reads its memory
        self.outputs.fill(self.result, returned)


class _Entry:
    """One row of the kernel table: callbacks, and everything that must stay in memory."""

    def __init__(self, kernel, device, lib):
        self.kernel, self.read = kernel, lib.attnbench_read
        numerics = lib.attnbench_numerics(kernel.p, kernel.acc, kernel.exp_rel_err, kernel.mma_roundoff, kernel.p_scale,
                                           kernel.head_grads, kernel.input_roundoff)
        if numerics is None:
            raise LoadError("it has too many kernels")
        self.launches = collections.OrderedDict()
        self.shown = set()
        self.callbacks = [_CALLBACK(self.supports), _CALLBACK(self.plan), _CALLBACK(self.launch)]
        self.texts = [text.encode() for text in (kernel.name, kernel.summary, kernel.shapes)]
        supports, plan, launch = (ctypes.cast(c, ctypes.c_void_p).value for c in self.callbacks)
        self.row = KernelTable(abi_version=ABI_VERSION, flags=kernel.flags, name=self.texts[0], summary=self.texts[1],
                               shapes=self.texts[2], op=kernel.op, device=device,
                               min_compute_capability=kernel.min_compute_capability, features=kernel.features,
                               supports=supports, numerics=numerics, plan=plan, launch=launch)
        self.bytes = ctypes.c_char * getattr(OpParams, kernel.op.name.lower()).size

    def guarded(self, message, function, *arguments):
        """Calls the function; turns what it raises into a status and a line."""
        try:
            function(*arguments)
            return 0
        except BaseException as error:
            return self.failed(message, error)

    def failed(self, message, error):
        """Turns what was raised into a status and a line."""
        text, status = str(error), KernelStatus.DEVICE_ERROR
        if isinstance(error, Unsupported):
            status = KernelStatus.UNSUPPORTED
            text = text if text.startswith(self.kernel.name) else f"{self.kernel.name}: {text}"
        elif not isinstance(error, WrongOutput):
            text = _one_line(error, self.kernel.file)
            self.show(error)
        KernelMessage.from_address(message).text = text.encode("utf-8", "replace")[:255]
        return status

    def show(self, error):
        """Prints the traceback, once for each place in the file."""
        place = type(error), _where(error, self.kernel.file)
        if place not in self.shown:
            self.shown.add(place)
            _print_traceback(error, self.kernel.file)

    def supports(self, op, context, message):
        def ask():
            params = getattr(OpParams.from_address(op), self.kernel.op.name.lower())
            why = self.kernel.refusal(params)
            if why is None and params.features & Feature.BF16 and _interprets_triton():
                why = "Triton's interpreter computes wrong products of bf16; dtype: fp16 or fp32 required"
            given = LaunchContext.from_address(context).compute_capability
            if why is None and 0 < given < self.kernel.min_compute_capability:
                why = f"compute capability {self.kernel.min_compute_capability} required, given {given}"
            if why is not None:
                raise Unsupported(why)
        return self.guarded(message, ask)

    def key(self, op, context):
        return self.bytes.from_address(op + _PARAMS).raw, ctypes.c_void_p.from_address(context + _STREAM).value

    def build(self, op, context):
        # The parameters and the context are copied: the harness may move its own.
        params = OpParams.from_buffer_copy(OpParams.from_address(op))
        where = LaunchContext.from_buffer_copy(LaunchContext.from_address(context))
        call = Call(params, where, lambda to, source, size: self.read(ctypes.byref(where), to, ctypes.c_void_p(source), size))
        if "torch" in sys.modules:
            use_torch(call)
        function = self.kernel.function(call)
        if not callable(function):
            raise TypeError(f"{self.kernel.name} must return the launch, a function without arguments; it returned "
                            f"{type(function).__name__}")
        launch = _Launch(self.kernel.name, function, Outputs(self.kernel, call) if self.kernel.flags & KernelFlag.RETURNS_OUTPUTS else None)
        self.launches[self.key(op, context)] = launch
        while len(self.launches) > _KEPT:
            self.launches.popitem(last=False)
        return launch

    def plan(self, op, context, message):
        gc.collect()  # collections are off, so that none disturbs a timed launch
        return self.guarded(message, self.build, op, context)

    def launch(self, op, context, message):
        launch = self.launches.get(self.key(op, context))
        try:
            if launch is None:
                launch = self.build(op, context)
            if launch.plain:
                launch.function()
            else:
                launch.run(LaunchContext.from_address(context).returned)
            return 0
        except BaseException as error:
            return self.failed(message, error)


_kept = []  # tables that the program refers to


def _table(kernels, lib):
    entries = [_Entry(k, device, lib) for k in kernels for device in k.devices]
    rows = (ctypes.c_void_p * len(entries))(*(ctypes.addressof(e.row) for e in entries))
    sizes = [ctypes.sizeof(s) for s in PLUGIN_STRUCTS]
    table = Plugin(magic=PLUGIN_MAGIC, abi_version=ABI_VERSION, struct_bytes=tuple(sizes), num_kernels=len(entries),
                   kernels=ctypes.cast(rows, ctypes.c_void_p))
    _kept.append((entries, rows, table))
    return ctypes.addressof(table)


def host(library, program, *argv):
    """Runs the program with these arguments in this process; its callbacks load files and launch kernels."""
    # Threads of numerical libraries that spin after their work would disturb timed launches.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "1")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    os.environ["ATTNBENCH"] = program
    lib = ctypes.CDLL(library)
    lib.attnbench_numerics.restype = ctypes.c_void_p
    lib.attnbench_numerics.argtypes = [ctypes.c_int32, ctypes.c_int32, ctypes.c_double, ctypes.c_double, ctypes.c_double, ctypes.c_int32,
                                         ctypes.c_double]
    lib.attnbench_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

    @_LOAD
    def load(file, digest, message):
        try:
            kernels, digest_of = load_file(os.fsdecode(file))
            ctypes.memmove(digest, digest_of.encode() + b"\0", 17)
            gc.collect()
            gc.disable()
            return _table(kernels, lib)
        except LoadError as error:
            message.contents.text = str(error).encode("utf-8", "replace")[:255]
            return None

    words = [os.fsencode(word) for word in argv]
    code = lib.attnbench_main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None), os.fsencode(program),
                              ctypes.byref(_PythonHost(load)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of libraries may not end

