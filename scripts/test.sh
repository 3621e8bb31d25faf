#!/usr/bin/env bash
# Builds everything and runs every test.
#
#   ./scripts/test.sh [options of ctest]       e.g. ./scripts/test.sh -R cli -V
#
# It installs what is missing (Debian, Ubuntu) and builds under build/test. CUDA is compiled if nvcc is found;
# tests that need a GPU skip if none works (-V prints why), and then one instance of each CUDA kernel is compiled,
# or all with ATTNBENCH_CUDA_INSTANCES=ALL in the environment. With CI set, warnings are errors, and Chromium,
# NumPy and Slurm are installed for the tests that need them, if apt-get works without a password.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  exit 0
fi

begin=$SECONDS
attnbench_setup tests
attnbench_install_test_tools

build=$attnbench_root/build/test
werror=OFF
if [[ -n ${CI:-} ]]; then werror=ON; fi
# Kernels are compiled for the GPU of this machine. Without a GPU most are compiled only to PTX. One instance of each
# CUDA kernel, and PTX for one architecture, are then enough, unless the change concerns them and CI asks what nvcc
# and the tests of machine code say.
architectures=90-virtual
instances=${ATTNBENCH_CUDA_INSTANCES:-ONE}
if attnbench_has_gpu; then
  architectures=native
  instances=ALL
elif [[ $instances == ALL || -n ${CI:-} &&
  -n $(attnbench_changed "" kernels/cuda kernels/contract kernels/common kernels/CMakeLists.txt cmake tests/sass tests/cheats ':!*.md') ]]; then
  architectures="80-virtual;90-virtual"
  instances=ALL
fi
attnbench_configure_grouped "$build" -DCMAKE_BUILD_TYPE=Release -DATTNBENCH_TESTS=ON -DATTNBENCH_CUDA=AUTO \
  -DCMAKE_CUDA_ARCHITECTURES="$architectures" -DATTNBENCH_CUDA_INSTANCES="$instances" \
  -DATTNBENCH_WERROR="$werror"
attnbench_build "$build"
attnbench_say "built in $((SECONDS - begin)) s"

# Waiting threads sleep and do not spin, because tests run in parallel.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY-passive}
cd "$build"
exec ctest --output-on-failure --parallel "$(nproc)" "$@"
