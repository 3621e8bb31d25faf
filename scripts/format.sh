#!/usr/bin/env bash
# Formats the C++ and CUDA files of the tree. --check only names files that are not formatted (exit 1).
#
#   ./scripts/format.sh [--check]
#
# The tree is formatted by clang-format 14, which is searched first because other versions differ in details.
# With CI set, it is installed if it is missing (Debian, Ubuntu).
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$attnbench_root"

readonly wanted=14

case ${1:-} in
  "") arguments=(-i) ;;
  --check) arguments=(--dry-run -Werror) ;;
  *) sed -n '2,/^set /{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 2 ;;
esac

tool=$(attnbench_clang_tool clang-format "$wanted")
version=$("$tool" --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
if [[ $version != "$wanted" ]]; then
  attnbench_say "$tool is version $version; the tree is formatted by version $wanted, and lines may differ for that alone"
fi

# Lists tracked and new files; without git, all files outside of build folders and results.
list_files() {
  git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh' 2>/dev/null ||
    find . \( -path './build*' -o -path ./results \) -prune -o -type f \
      \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0
}
files=()
while IFS= read -r -d '' file; do
  if [[ -f $file ]]; then files+=("$file"); fi  # tracked, but deleted here
done < <(list_files)
if ((${#files[@]} == 0)); then
  attnbench_say "no C++ or CUDA files found"
  exit 2
fi
if ! printf '%s\0' "${files[@]}" | xargs -0 "$tool" --style=file "${arguments[@]}"; then
  attnbench_say "not formatted; ./scripts/format.sh does it"
  exit 1
fi
attnbench_say "${#files[@]} files ${1:+are }formatted"
