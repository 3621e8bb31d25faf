#!/usr/bin/env bash
# Runs clang-tidy with .clang-tidy on each C++ file in which a change touches more than #include lines, and compiles by
# itself each other file that the change concerns. The exit code is 1 if either has findings.
#
#   ./scripts/lint.sh [BASE]    what changed since the merge base with BASE (default: attnbench_changed of
#                               scripts/setup.sh), and what is not committed
#   ./scripts/lint.sh --all     every file
#
# A change concerns a file that includes a changed header, directly or not. Such a file may lack an #include that the
# files before it in its group bring (build/test compiles in groups). build/lint is configured for commands of
# single files. With CI set, clang-tidy is installed if it is missing.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$attnbench_root"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  exit 0
fi
if [[ -n ${1:-} && $1 != --all ]] && ! git rev-parse --verify --quiet "$1^{commit}" >/dev/null; then
  attnbench_say "no commit '$1'; usage: ./scripts/lint.sh [BASE|--all]"
  exit 2
fi
tool=$(attnbench_clang_tool clang-tidy 14)
attnbench_configure "$attnbench_root/build/lint" -DATTNBENCH_TESTS=ON -DATTNBENCH_CUDA=OFF >&2
cmake --build build/lint --target attnbench_revision >&2

if [[ ${1:-} == --all ]]; then
  edited=$(git ls-files -- '*.cpp')
  concerned=$edited
else
  # Files in which more than #include lines changed.
  edited=$(git diff -M -U0 "$(attnbench_base "${1:-}")" -- '*.cpp' |
    awk '/^\+\+\+ b\// {file = substr($0, 7); next} /^---/ {next} /^[-+]./ && !/^[-+]#include / {print file}' | sort -u
    git ls-files --others --exclude-standard -- '*.cpp')
  changed=$(attnbench_changed "${1:-}" '*.cpp' '*.h')
  concerned=$changed
  headers=$(grep '\.h$' <<<"$changed" || true)
  while [[ -n $headers ]]; do
    # shellcheck disable=SC2001  # each line, not each match
    includers=$(sed 's/.*/#include "&"/' <<<"$headers" | git grep -lFf - -- '*.cpp' '*.h' || true)
    new=$(comm -23 <(sort -u <<<"$includers") <(sort -u <<<"$concerned"))
    concerned+=$'\n'$new
    headers=$(grep '\.h$' <<<"$new" || true)
  done
fi

# Prints one command a line for the files that a change concerns and that clang-tidy, below, does not compile.
commands() {
  python3 - 3<<<"$concerned" 4<<<"$edited" <<'PYTHON'
import json, os, shlex
wanted = set(open(3).read().split()) - set(open(4).read().split())
for row in json.load(open("build/lint/compile_commands.json")):
    if os.path.relpath(row["file"]) in wanted:
        print(f"cd {shlex.quote(row['directory'])} && {row['command']} -fsyntax-only -w")
PYTHON
}
commands >build/lint/commands
if ! tr '\n' '\0' <build/lint/commands | xargs -0 -r -n 1 -P "$(nproc)" sh -c; then
  attnbench_say "a file does not compile by itself (see above): add the #include that it lacks"
  exit 1
fi
attnbench_say "$(wc -l <build/lint/commands) other files compile by themselves"

files=()
while IFS= read -r file; do
  if grep -qF "/$file\"" build/lint/compile_commands.json; then files+=("$file"); fi
done <<<"$edited"
if ((${#files[@]} == 0)); then
  attnbench_say "no compiled C++ file changed"
  exit 0
fi
# Warning options of g++ that clang does not know are no findings.
if ! printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$(nproc)" "$tool" -p build/lint --quiet --extra-arg=-Wno-unknown-warning-option 2>/dev/null; then
  attnbench_say "clang-tidy objects"
  exit 1
fi
attnbench_say "clang-tidy has no objection to ${#files[@]} files"
