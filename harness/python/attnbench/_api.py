"""attnbench from Python: judge a kernel in a test, or get the records of a run."""
from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Mapping, Sequence

from ._kernel import Kernel


class CheckFailed(AssertionError):
    """A kernel is wrong, crashed or did nothing; its text is what the program printed."""


def _of_wheel():
    """The program that pip installed with this package, if it did."""
    try:
        files = importlib.metadata.files("attnbench") or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    programs = [f.locate().resolve() for f in files if f.parts[-2:] == ("bin", "attnbench")]
    return str(programs[0]) if programs and programs[0].is_file() else None


def _program():
    """The program's file: $ATTNBENCH, or the one beside this package, or the one of its wheel, or that of PATH."""
    named = os.environ.get("ATTNBENCH")
    if named:
        return named
    package = pathlib.Path(__file__).absolute().parent
    for folder in (package.parent.parent, package.parent.parent.parent.parent / "bin"):
        if (folder / "attnbench").is_file():
            return str(folder / "attnbench")
    found = _of_wheel() or shutil.which("attnbench")
    if found is None:
        raise FileNotFoundError("no program attnbench in PATH; ATTNBENCH=FILE names one")
    return found


def version() -> str:
    """The version of the program that check and run start, such as "0.1.0"."""
    return subprocess.run([_program(), "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout.split()[1]


def _run(kernel, sweep, case, device, options, more=()):
    if not isinstance(kernel, Kernel):
        raise TypeError(f"{kernel!r} is no kernel: a function with @attnbench.attention, attention_backward, kv_append, kv_move or merge_states is required")
    if (sweep is None) == (case is None):
        raise TypeError("one of sweep (a YAML file, or a name such as 'smoke') and case (a dict, or text as of attnbench run --case) is required")
    if case is not None and not isinstance(case, str):
        case = json.dumps(case)  # YAML too
    if isinstance(options, str):
        options = shlex.split(options)
    if device is None and len(kernel.devices) == 1:
        device = kernel.devices[0].name.lower()
    with tempfile.TemporaryDirectory(prefix="attnbench-") as folder:
        command = [_program(), "run", *([sweep] if case is None else ["--case", case]), "--plugin", kernel.file, "--kernel", kernel.name,
                   *(["--device", device] if device else []), "--python", sys.executable, "--format", "json",
                   "--out", f"{folder}/out", *more, *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        done.stdout = "".join(line for line in done.stdout.splitlines(True) if not line.startswith(f"report: {folder}"))
        results = pathlib.Path(folder, "out", "results.json")
        records = json.loads(results.read_text())["benchmarks"] if results.exists() else []
    return done, records


def check(kernel: Kernel, sweep: str | os.PathLike[str] | None = None, *, case: str | Mapping[str, Any] | None = None,
          device: str | None = None, options: str | Sequence[str] = ()) -> int:
    """Proves the kernel on the cases of a sweep (a YAML file, or a name such as "smoke"), or on one case; nothing is timed.

    Returns the number of cases that passed. Raises CheckFailed if one does not pass, or if none ran; its text
    has the clues and the line that repeats the case. `device`: by default the kernel's; if it has both, the GPU
    if there is one. `options`: further words for `attnbench run`, a list or one text.
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    done, records = _run(kernel, sweep, case, device, options, ["--no-time"])
    passed = sum(r["attnbench"]["status"] == "pass" for r in records)
    if done.returncode != 0 or passed == 0:
        skipped = all(r["attnbench"]["status"] == "skip" for r in records)
        what = "no case ran" if done.returncode in (0, 6) and skipped else "attnbench run failed"
        raise CheckFailed(f"{kernel.name}: {what}\n{done.stdout.strip()}")
    return passed


class Records(list):
    """Records of a run, dicts as in results.json under "benchmarks": r["name"], r["attnbench"]["status"],
    r["attnbench"]["time"]["median_us"] and so on."""

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row per record; nested keys are joined by dots."""
        import pandas
        return pandas.json_normalize(list(self))


def run(kernel: Kernel, sweep: str | os.PathLike[str] | None = None, *, case: str | Mapping[str, Any] | None = None,
        device: str | None = None, options: str | Sequence[str] = ()) -> Records:
    """Verifies and times the kernel; returns its Records, of failed cases too. Raises RuntimeError if nothing ran."""
    done, records = _run(kernel, sweep, case, device, options)
    if not records:
        raise RuntimeError(f"attnbench run ended with exit code {done.returncode}\n{done.stdout.strip()}")
    return Records(records)
