#!/usr/bin/env bash
# Runs clang-tidy with .clang-tidy on C++ files that changed. The exit code is 1 if it has findings.
#
#   ./scripts/lint.sh [BASE]    files changed since the merge base with BASE (default: origin/main; if HEAD is
#                               that merge base, since HEAD~1), and files not committed
#   ./scripts/lint.sh --all     every file
#
# It configures build/lint, in which each file has its own compile command (build/test compiles files in
# groups). With CI set, clang-tidy is installed if it is missing.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$attnbench_root"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  exit 0
fi
tool=$(attnbench_clang_tool clang-tidy 14)
attnbench_configure "$attnbench_root/build/lint" -DATTNBENCH_TESTS=ON -DATTNBENCH_CUDA=OFF >&2
cmake --build build/lint --target attnbench_revision >&2

changed_files() {
  if [[ ${1:-} == --all ]]; then
    git ls-files -- '*.cpp'
    return
  fi
  local base
  if [[ -n ${1:-} ]] && ! git rev-parse --verify --quiet "$1^{commit}" >/dev/null; then
    attnbench_say "no commit '$1'; usage: ./scripts/lint.sh [BASE|--all]"
    return 2
  fi
  base=$(git merge-base HEAD "${1:-origin/main}" 2>/dev/null || true)
  if [[ -z $base || $base == "$(git rev-parse HEAD)" ]]; then
    base=$(git rev-parse --verify --quiet HEAD~1 || git rev-parse HEAD)
  fi
  git diff --name-only --diff-filter=d "$base" -- '*.cpp'
  git ls-files --others --exclude-standard -- '*.cpp'
}

# Only compiled files have a compile command, so headers are not linted by themselves.
listed=$(changed_files "${1:-}") || exit
files=()
while IFS= read -r file; do
  if grep -qF "/$file\"" build/lint/compile_commands.json; then files+=("$file"); fi
done < <(sort -u <<<"$listed" | sed '/^$/d')
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
