#!/usr/bin/env bash
# From a fresh clone to a table of checked and timed kernels.
#
#   ./scripts/quickstart.sh [options of `attnbench run`]
#
# It installs what is missing (Debian, Ubuntu), builds the program under build/quickstart, and runs
# configs/quickstart.yaml on the best device. CUDA is compiled only if a GPU is present. The script writes
# only under build/ and results/runs/.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  exit 0
fi

find_nvcc() { command -v nvcc || { [[ -x /usr/local/cuda/bin/nvcc ]] && echo /usr/local/cuda/bin/nvcc; }; }

begin=$SECONDS
attnbench_setup program

build=$attnbench_root/build/quickstart
options=(-DCMAKE_BUILD_TYPE=Release -DATTNBENCH_TESTS=OFF)
if ! attnbench_has_gpu; then
  attnbench_say "no GPU here: building for the CPU alone"
  options+=(-DATTNBENCH_CUDA=OFF)
elif nvcc=$(find_nvcc); then
  attnbench_say "GPU found: building with $nvcc"
  options+=(-DATTNBENCH_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES=native)
else
  attnbench_say "a GPU, but no nvcc in PATH or /usr/local/cuda/bin: building for the CPU alone"
  options+=(-DATTNBENCH_CUDA=OFF)
fi
if ! attnbench_configure_grouped "$build" "${options[@]}" >&2; then
  [[ ${options[*]} == *ATTNBENCH_CUDA=ON* ]] || exit 2
  attnbench_say "CUDA cannot be set up here (see above): building for the CPU alone"
  attnbench_configure_grouped "$build" -DCMAKE_BUILD_TYPE=Release -DATTNBENCH_TESTS=OFF -DATTNBENCH_CUDA=OFF >&2
fi
attnbench_build "$build" --target attnbench attnbench_library  # the library is for kernels in Python
attnbench_say "built in $((SECONDS - begin)) s: $build/attnbench"

out=$attnbench_root/results/runs/quickstart
run=("$build/attnbench" run "$attnbench_root/configs/quickstart.yaml")
case " $* " in
  *" --out "* | *" --out="*) out="the folder of --out" ;;
  *) run+=(--out "$out" --format "json,csv,md") ;;
esac
rc=0
"${run[@]}" "$@" || rc=$?

cat <<TEXT

Reports: $out (results.json; results.csv and results.md beside it), after $((SECONDS - begin)) s in all.
Next:    $build/attnbench run --case '{kv: paged, batch: 16q1s2k, heads: 64/8, block_size: 64}'
         $build/attnbench list $attnbench_root/configs/smoke.yaml    # the format: configs/README.md
To call it attnbench in this shell:
         export PATH="$build:\$PATH"
TEXT
if [[ $rc -eq 4 ]]; then
  attnbench_say "exit code 4: results are right, but some times were below what this machine's ceilings allow (was it busy?)"
fi
exit "$rc"
