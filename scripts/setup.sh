# shellcheck shell=bash
# Functions for the other scripts, which source this file. They find the compiler, CMake and the libraries
# that attnbench is built from. On Debian and Ubuntu they install what is missing.
#
#   attnbench_setup program|tests        finds or installs everything; `tests` includes GoogleTest
#   attnbench_install PACKAGE...         apt-get install, as root or through sudo
#   attnbench_install_test_tools         with CI set: installs tools without which some tests skip; it may
#                                        extend PATH
#   attnbench_clang_tool NAME VERSION    prints the path of a tool such as clang-format; with CI set, installs it
#   attnbench_configure DIR OPTION...    cmake -S <repository> -B DIR, with Ninja if found
#   attnbench_configure_grouped DIR ...  the same; files of a folder are compiled in groups
#   attnbench_build DIR OPTION...        cmake --build DIR on all cores; if it fails, ends with the first error
#   attnbench_base BASE                  the merge base with BASE (empty: origin/main); on origin/main itself, the commit
#                                        4 hours before its last one
#   attnbench_changed BASE PATTERN...    files that changed since then, or are not committed
#
# Chart.js, for `attnbench report`, is installed if that needs no password; all else works without it.
#
# A function returns only if everything is in place. Otherwise it says what to do, and exits with 2.

attnbench_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export attnbench_root

# Keep these in step with cmake/Missing.cmake.
attnbench_dnf="dnf install gcc-c++ cmake ninja-build cli11-devel yaml-cpp-devel eigen3-devel google-benchmark-devel json-devel fmt-devel re2-devel zlib-devel gtest-devel gmock-devel"
attnbench_conda="conda install -c conda-forge cxx-compiler cmake ninja cli11 yaml-cpp eigen benchmark nlohmann_json fmt re2 zlib gtest"

attnbench_say() { printf 'attnbench: %s\n' "$*" >&2; }

attnbench_clang_tool() {
  local name=$1 version=$2
  if command -v "$name-$version"; then return; fi
  # Outside of CI, another version than the tree's is better than none.
  if [[ -z ${CI:-} ]] || "$name" --version 2>/dev/null | grep -q "version $version\."; then
    if command -v "$name"; then return; fi
  fi
  if [[ -z ${CI:-} ]]; then
    attnbench_say "$name is missing: apt-get install $name-$version, or pip install $name==$version.*"
    exit 2
  fi
  local package=$name
  if apt-cache show "$name-$version" >/dev/null 2>&1; then package=$name-$version; fi
  attnbench_install "$package" >&2
  command -v "$name-$version" || command -v "$name"
}

# Prints the Debian packages of what is missing, one per line.
attnbench_missing() {
  local compiler=${CXX:-c++}
  command -v "$compiler" >/dev/null 2>&1 || compiler=g++
  if ! command -v "$compiler" >/dev/null 2>&1; then echo g++; fi
  command -v cmake >/dev/null 2>&1 || echo cmake
  if ! command -v ninja >/dev/null 2>&1 && ! command -v make >/dev/null 2>&1; then echo ninja-build; fi

  # a header (or several, of which one is enough) and its package
  local table=(
    "CLI/CLI.hpp libcli11-dev"
    "yaml-cpp/yaml.h libyaml-cpp-dev"
    "Eigen/Core|eigen3/Eigen/Core libeigen3-dev"
    "benchmark/benchmark.h libbenchmark-dev"
    "nlohmann/json.hpp nlohmann-json3-dev"
    "fmt/format.h libfmt-dev"
    "re2/re2.h libre2-dev"
    "zlib.h zlib1g-dev"
  )
  if [[ ${1:-} == tests ]]; then
    table+=("gtest/gtest.h libgtest-dev" "gmock/gmock.h libgmock-dev")
  fi
  if ! command -v "$compiler" >/dev/null 2>&1; then
    printf '%s\n' "${table[@]##* }"  # nothing to look with: take all, apt-get leaves what is there
    return
  fi

  # One run of the preprocessor tells which headers the compiler finds, wherever they are installed.
  local include=() prefix row headers header program=""
  local prefixes=${CMAKE_PREFIX_PATH:-}
  for prefix in ${CONDA_PREFIX:-} ${prefixes//[:;]/ }; do include+=("-I$prefix/include"); done
  for row in "${table[@]}"; do
    headers=${row% *}
    program+="#if !("
    for header in ${headers//|/ }; do program+="__has_include(<$header>) || "; done
    program+="0)"$'\n'"attnbench_missing ${row##* }"$'\n'"#endif"$'\n'
  done
  "$compiler" "${include[@]}" -std=c++17 -x c++ -E - <<<"$program" | sed -n 's/^attnbench_missing //p' | tr -d ' '
}

attnbench_other_ways() {
  cat >&2 <<TEXT
Without apt-get, install everything with one of
  dnf   : sudo $attnbench_dnf
  conda : $attnbench_conda
and run this script again.
TEXT
}

attnbench_install() {
  local lines=("apt-get update" "apt-get install -y --no-install-recommends $*")
  if ! command -v apt-get >/dev/null 2>&1; then
    attnbench_say "missing: $*"
    attnbench_other_ways
    exit 2
  fi
  local as=()
  if [[ $(id -u) -ne 0 ]]; then
    as=(sudo)
    # Without a terminal sudo cannot ask for a password.
    if ! command -v sudo >/dev/null 2>&1 || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
      attnbench_say "missing: $*; installing needs root. As root, run"
      printf '  %s\n' "${lines[@]}" >&2
      attnbench_other_ways
      exit 2
    fi
  fi
  local line
  for line in "${lines[@]}"; do
    attnbench_say "running: ${as[*]:+${as[*]} }$line"
    # shellcheck disable=SC2086  # the line is words
    if ! "${as[@]}" env DEBIAN_FRONTEND=noninteractive $line </dev/null >&2; then
      attnbench_say "that failed; nothing was built"
      exit 2
    fi
  done
}

# Installs Chart.js, which is optional: a failure prints a line and does not stop the build.
attnbench_install_optional() {
  local place
  for place in /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist /usr/lib/node_modules/chart.js/dist; do
    if [[ -e $place/chart.min.js || -e $place/chart.umd.js ]]; then return; fi
  done
  if command -v apt-get >/dev/null 2>&1 && { [[ $(id -u) -eq 0 ]] || sudo -n true 2>/dev/null; }; then
    if (attnbench_install libjs-chart.js); then return; fi
  fi
  attnbench_say "no Chart.js (apt: libjs-chart.js): building without the HTML of attnbench report"
}

# With CI set, installs Chromium for the tests of the HTML report, NumPy for those of kernels in Python, Slurm
# for those of scripts/slurm, and cuobjdump. On other machines it installs none, because some start daemons. A
# failure only prints a line.
attnbench_install_test_tools() {
  local sets=() packages name
  # With several names, command -v succeeds if it finds one.
  command -v chromium chromium-browser google-chrome >/dev/null || sets+=(chromium)
  python3 -c 'import numpy' >/dev/null 2>&1 || sets+=("python3 python3-numpy")
  for name in slurmctld slurmd sbatch squeue munged; do
    if ! PATH=$PATH:/usr/sbin:/sbin command -v "$name" >/dev/null; then
      sets+=("slurm-wlm munge")
      break
    fi
  done
  for packages in "${sets[@]}"; do
    # shellcheck disable=SC2086  # the set is words
    if [[ -n ${CI:-} ]] && command -v apt-get >/dev/null 2>&1 && { [[ $(id -u) -eq 0 ]] || sudo -n true 2>/dev/null; } &&
      (attnbench_install $packages); then
      continue
    fi
    attnbench_say "not here: $packages; tests that need it are skipped"
  done

  # Some packages of the CUDA Toolkit leave out cuobjdump, which the test of machine code needs. PyPI has it.
  local tools=$attnbench_root/build/cuobjdump
  if [[ -n ${CI:-} ]] && { command -v nvcc || [[ -x /usr/local/cuda/bin/nvcc ]]; } >/dev/null &&
    ! command -v cuobjdump >/dev/null && [[ ! -x /usr/local/cuda/bin/cuobjdump ]]; then
    if python3 -m pip install -q --no-deps --upgrade --target "$tools" nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm; then
      PATH=$(dirname "$(find "$tools" -name cuobjdump -type f | head -n 1)"):$PATH
      export PATH
    else
      attnbench_say "not here: cuobjdump; the test of machine code is left out"
    fi
  fi
}

attnbench_check_versions() {
  local version
  version=$(cmake --version | sed -n 's/^cmake version \([0-9]*\.[0-9]*\).*/\1/p')
  if ((${version%%.*} < 3 || (${version%%.*} == 3 && ${version##*.} < 24))); then
    cat >&2 <<TEXT
attnbench: cmake $version is too old, 3.24 is needed (Debian 12 has 3.25; Ubuntu 22.04 has 3.22). Newer ones:
  pip   : python3 -m pip install --user cmake    (and have ~/.local/bin first in PATH)
  apt   : Kitware's repository, https://apt.kitware.com
TEXT
    exit 2
  fi
  local compiler=${CXX:-c++}
  if [[ $("$compiler" --version 2>/dev/null) == *"Free Software Foundation"* ]]; then
    version=$("$compiler" -dumpversion)
    if ((${version%%.*} < 11)); then
      attnbench_say "$compiler is GCC $version, 11 is needed (C++20); install a newer one and set CXX=g++-12 or the like"
      exit 2
    fi
  fi
}

attnbench_setup() {
  local missing
  mapfile -t missing < <(attnbench_missing "$@")
  if ((${#missing[@]} > 0)); then
    attnbench_say "missing here: ${missing[*]}"
    attnbench_install "${missing[@]}"
    hash -r
  fi
  attnbench_install_optional
  attnbench_check_versions
}

attnbench_configure() {
  local build=$1 generator=()
  shift
  # A build folder keeps the generator that it was made with.
  if [[ ! -f $build/CMakeCache.txt ]] && command -v ninja >/dev/null 2>&1; then generator=(-G Ninja); fi
  cmake -S "$attnbench_root" -B "$build" "${generator[@]}" "$@"
}

attnbench_has_gpu() { [[ $(nvidia-smi -L 2>/dev/null) == *GPU* || -e /dev/nvidia0 ]]; }

# Headers and templates are compiled once per group. A build from scratch takes a third of the time; a build
# after a change in one file takes longer.
attnbench_configure_grouped() {
  attnbench_configure "$@" -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=18
}

attnbench_base() {
  local base
  base=$(git merge-base HEAD "${1:-origin/main}" 2>/dev/null || true)
  if [[ -z $base || $base == "$(git rev-parse HEAD)" ]]; then
    base=$(git rev-list -1 --before="$(($(git show -s --format=%ct HEAD) - 4 * 3600))" HEAD)
  fi
  echo "${base:-$(git hash-object -t tree /dev/null)}"
}

attnbench_changed() {
  local base
  base=$(attnbench_base "$1")
  shift
  git diff --name-only --diff-filter=d "$base" -- "$@"
  git ls-files --others --exclude-standard -- "$@"
}

# The output goes to stderr and to DIR/build.log.
attnbench_build() {
  local build=$1 log=$1/build.log
  shift
  if cmake --build "$build" --parallel "$(nproc)" "$@" 2>&1 | tee "$log" >&2; then return; fi
  attnbench_say "the build failed; all of its output is in $log; the first error:"
  grep -m1 -E '(^|[ :])(fatal )?error ?:|undefined reference|Killed' "$log" >&2 || tail -n 5 "$log" >&2
  if grep -q 'Killed' "$log"; then
    attnbench_say "a compiler was killed, perhaps for want of memory: cmake --build $build --parallel 1 needs less"
  fi
  exit 2
}
