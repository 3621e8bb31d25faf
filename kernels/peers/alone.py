"""Single files of a package: its other modules, and what they need, are stand-ins while the files are imported."""
import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
import types

import attnbench as ab

ab.need("triton", "pip install triton")
ab.need("torch", "pip install torch")

#: Where kernels in Triton run: TRITON_INTERPRET=1 runs them on the CPU.
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


class Nothing:
    """It is false, and gives nothing whatever is done with it, except what it was given."""

    def __init__(self, **given):
        self.__dict__.update(given)

    def __getattr__(self, name):
        return Nothing()

    def __call__(self, *_, **__):
        return Nothing()

    def __bool__(self):
        return False


class _StandIn(types.ModuleType):
    def __init__(self, name, given):
        super().__init__(name)
        self.__dict__.update(given)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages, files, given):
        self.packages, self.files, self.given = packages, files, given

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in self.packages:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if name in self.files or (spec is None and name == self.packages[0]):
            return spec  # the file, or: the package is not installed
        stand_in = importlib.machinery.ModuleSpec(name, self, is_package=True)
        stand_in.submodule_search_locations = list(spec.submodule_search_locations or []) if spec else []
        return stand_in

    def create_module(self, spec):
        return _StandIn(spec.name, self.given)

    def exec_module(self, module):
        pass


@contextlib.contextmanager
def _hidden(packages):
    """The packages are not imported: neither before, if another peer uses them whole, nor afterwards."""
    def taken():
        return {name: sys.modules.pop(name) for name in [*sys.modules] if name.split(".")[0] in packages}
    earlier = taken()
    try:
        yield
    finally:
        taken()
        sys.modules.update(earlier)


def files(install, *names, also=(), without=(), **given):
    """The modules `names`, all of one package. `also`: files that they import; `given`: what stand-ins have, by name; `without`: other
    packages to stand in for."""
    packages = (names[0].split(".")[0], *without)
    with _hidden(packages):
        finder = _Finder(packages, {*names, *also}, given)
        sys.meta_path.insert(0, finder)
        try:
            return [ab.need(name, install) for name in names]
        finally:
            sys.meta_path.remove(finder)
