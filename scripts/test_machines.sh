#!/usr/bin/env bash
# Runs configs/quickstart.yaml and the tests under made-up machines, so that neither depends on the machine that it was
# written on.
#
#   ./scripts/test_machines.sh [MACHINE...] [-- options of ctest]     default: every machine
#
# build/test must be built (./scripts/test.sh). What the program can read of processors, caches, memory and limits is
# made up by tests/machines/made_up_machine.cpp; the locale and the rest of the environment are set. The exit code is 1
# if a test fails under any of them.
set -uo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# name        cores  GiB of memory, of them free; MiB of L3 per 8 cores (0: not listed); limit of the cgroup in GiB (0: none)
machines="
one_core          1    4    3     4   0
laptop            4    8    4    12   0
wide_cache       16  128   16   260   0
server           96  768   16    96   0
container        16  256   16    32   4
german            6   24   16     0   0
"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  echo "Machines:$(awk 'NF {printf " %s", $1}' <<<"$machines")"
  exit 0
fi
wanted=()
while (($# > 0)) && [[ $1 != -- ]]; do wanted+=("$1") && shift; done
(($# > 0)) && shift

build=$attnbench_root/build/test
library=$build/tests/machines/made_up_machine.so
[[ -e $library ]] || { attnbench_say "$library is missing; ./scripts/test.sh builds it" && exit 2; }

# describe ROOT NAME CORES MEMORY FREE L3 LIMIT: writes the files that describe the machine.
describe() {
  local root=$1 name=$2 cores=$3 memory=$4 free=$5 l3=$6 limit=$7 cpu
  mkdir -p "$root/proc/self" "$root/sys/devices/system/cpu" "$root/sys/fs/cgroup/job/step"
  echo "0-$((cores - 1))" | tee "$root/sys/devices/system/cpu/possible" "$root/sys/devices/system/cpu/present" >"$root/sys/devices/system/cpu/online"
  for ((cpu = 0; cpu < cores; ++cpu)); do
    printf 'processor\t: %d\n' "$cpu"
    if [[ $name != german ]]; then printf 'model name\t: Made Up %s, 9999 MHz\n' "$name"; fi
    echo
    if ((l3 > 0)); then
      local cache=$root/sys/devices/system/cpu/cpu$cpu/cache/index3
      mkdir -p "$cache"
      echo "$((cpu / 8 * 8))-$((cpu / 8 * 8 + 7))" >"$cache/shared_cpu_list"
      echo "${l3}M" >"$cache/size"
    fi
  done >"$root/proc/cpuinfo"
  {
    echo "MemTotal: $((memory << 20)) kB"
    if [[ $name != german ]]; then echo "MemAvailable: $((free << 20)) kB"; fi
  } >"$root/proc/meminfo"
  if [[ $name != german ]]; then ln -s /proc/stat "$root/proc/stat"; fi
  if ((limit > 0)); then
    echo "0::/job/step" >"$root/proc/self/cgroup"
    echo "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw" >"$root/proc/self/mountinfo"
    echo max >"$root/sys/fs/cgroup/job/step/memory.max"
    echo $((limit << 30)) >"$root/sys/fs/cgroup/job/memory.max"
    echo $((512 << 20)) | tee "$root/sys/fs/cgroup/job/memory.current" >"$root/sys/fs/cgroup/job/step/memory.current"
  fi
}

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=()
while read -r name cores memory free l3 limit; do
  [[ -n $name ]] || continue
  if ((${#wanted[@]} > 0)) && [[ " ${wanted[*]} " != *" $name "* ]]; then continue; fi
  describe "$place/$name" "$name" "$cores" "$memory" "$free" "$l3" "$limit"
  environment=(MADE_UP_CORES="$cores" MADE_UP_MEMORY=$((memory << 30)) MADE_UP_ROOT="$place/$name" OMP_WAIT_POLICY=passive)
  if [[ $name == german ]]; then
    mkdir "$place/locale"
    localedef -i de_DE -f UTF-8 "$place/locale/de_DE.UTF-8" || attnbench_say "german: that locale cannot be made here"
    environment+=(LOCPATH="$place/locale" LC_ALL=de_DE.UTF-8 LANGUAGE=de TZ=Asia/Kolkata COLUMNS=43 NO_COLOR=1 TERM=dumb)
    umask 077
  fi
  attnbench_say "$name: $cores cores, $free of $memory GiB free, $l3 MiB of L3 per 8 cores, limit $limit GiB"
  run=(env "${environment[@]}" LD_PRELOAD="$library")
  "${run[@]}" "$build/attnbench" run "$attnbench_root/configs/quickstart.yaml" --device cpu --out "$place/$name/out" ||
    failed+=("$name: quickstart")
  # Tens of threads that share a real core make times that no machine has. So the tests have fewer than the machine.
  ((cores <= 16)) || run+=(OMP_NUM_THREADS=16)
  (cd "$build" && "${run[@]}" ctest --output-on-failure --parallel "$(nproc)" "$@") || failed+=("$name: tests")
done <<<"$machines"
if ((${#failed[@]} > 0)); then
  attnbench_say "failed under$(printf ' %s;' "${failed[@]}")"
  exit 1
fi
