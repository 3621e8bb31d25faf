"""A package that a kernel's file needs, and how to install it."""
from __future__ import annotations

import importlib
from types import ModuleType


class Missing(ImportError):
    """A module that cannot be imported. `why` says what to install, in one line without the module's name."""

    def __init__(self, module, why):
        super().__init__(f"{module}: {why}")
        self.why = why


def need(module: str, install: str) -> ModuleType:
    """Imports the module and returns it: flash = attnbench.need("flash_attn", "pip install flash-attn").

    If it cannot be imported, the file is not loaded, and the line that says so has `install`. A peer is left out of
    the run then (kernels/peers/README.md).
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        text = " ".join(str(error).split())
        raise Missing(module, f"{'not installed' if absent else f'cannot be imported: {text}'}; {install}") from None
