#!/usr/bin/env python3
"""Runs the build steps of the workflows that this tree ships: .github/workflows/*.yml and kernels/own_repository.md.

    scripts/test_workflows.py              # runs them; those of a job on a GPU only where nvidia-smi finds one
    scripts/test_workflows.py --list       # prints the commands, runs nothing

A build step is one whose name begins with Build or Install. Each job gets a fresh clone of HEAD, as a checkout does;
the base of a pull request is HEAD, too, and the kernel of another repository is the example. Exit code 1: a step
failed; its output is printed."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "kernels/own_repository.md"


def workflows():
    """(file, text) of each workflow."""
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        yield str(path.relative_to(ROOT)), path.read_text()
    for text in re.findall(r"^```yaml\n(.*?)^```", (ROOT / PAGE).read_text(), re.M | re.S):
        if "runs-on:" in text:
            yield PAGE, text


def build_steps(text):
    """(job, whether it needs a GPU, step, commands) of each build step: the part of YAML that workflows use."""
    job, gpu, step, lines = "", False, "", text.splitlines()
    for number, line in enumerate(lines):
        if found := re.match(r"  (\w+):( +#.*)?$", line):
            job, gpu = found[1], False
        elif re.match(r"    runs-on: .*gpu", line):
            gpu = True
        elif found := re.match(r" +- \{name: (Build.*?),.* run: (.*?)(, [\w-]+: .*)?\}$", line):
            yield job, gpu, found[1], found[2]
        elif found := re.match(r" +- (?:name: )?(.*)", line):
            step = found[1]
        elif (found := re.match(r"( +)run: (.*)$", line)) and step.startswith(("Build", "Install")):
            block = [found[2]]
            if found[2] == "|":
                inside = len(found[1]) + 2
                rest = lines[number + 1:]
                end = next((i for i, more in enumerate(rest) if more.strip() and not more.startswith(" " * inside)), len(rest))
                block = [more[inside:] for more in rest[:end]]
            yield job, gpu, step, "\n".join(block)


def has_gpu():
    try:
        return "GPU" in subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    except OSError:
        return False


def clone(place):
    subprocess.run(["git", "clone", "-q", str(ROOT), str(place)], check=True)


def checked_out(place, file):
    """The folder in which the steps of a job begin."""
    if file != PAGE:
        clone(place / "tree")
        return place / "tree"
    clone(place / "attnbench")
    makefile = re.search(r"^```make\n(.*?)^```", (ROOT / PAGE).read_text(), re.M | re.S)[1]
    for name in ("mine", "base"):
        (place / name).mkdir()
        (place / name / "Makefile").write_text(makefile)
        shutil.copy(ROOT / "kernels/examples/cpu/kernel.cpp", place / name / "mine.cpp")
    return place


def run_job(file, job, steps):
    """Whether all steps succeed. Files of GITHUB_ENV and GITHUB_PATH pass values from step to step."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        at = checked_out(place, file)
        env = {**os.environ, "BASE": "HEAD", "BASELINES": folder}
        for name in ("GITHUB_ENV", "GITHUB_PATH"):
            env[name] = str(place / name)
            (place / name).touch()
        for step, commands in steps:
            env["PATH"] = ":".join([*(place / "GITHUB_PATH").read_text().split(), os.environ["PATH"]])
            done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", commands], cwd=at, env=env,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            print(f"{file}: {job}: {step}: {'ok' if done.returncode == 0 else 'FAILED'}", flush=True)
            if done.returncode != 0:
                print(done.stdout[-5000:])
                return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the commands, run nothing")
    args = parser.parse_args()
    jobs = {}
    for file, text in workflows():
        for job, gpu, step, commands in build_steps(text):
            jobs.setdefault((file, job, gpu), []).append((step, commands))
    if len(jobs) < 3:
        sys.exit(f"test_workflows: found build steps in {len(jobs)} jobs; cpu-gate, gpu-gate and {PAGE} have some")
    failed = False
    for (file, job, gpu), steps in jobs.items():
        if args.list:
            for step, commands in steps:
                print(f"{file}: {job}{' (GPU)' if gpu else ''}: {step}\n{commands}\n")
        elif gpu and not has_gpu():
            print(f"{file}: {job}: no GPU here: not run")
        else:
            failed |= not run_job(file, job, steps)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
