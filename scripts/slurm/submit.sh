#!/usr/bin/env bash
# Runs a sweep on a Slurm cluster: an array job with a task for each shard, and a job that merges their results.
#
#   ./scripts/slurm/submit.sh [--wait] SHARDS DIR [SBATCH OPTION...] -- CONFIG... [options of attnbench run]
#   ./scripts/slurm/submit.sh 8 /shared/night --gres=gpu:1 --time=2:00:00 -- configs/ci.yaml --device cuda
#
# DIR must be one that every node sees. Task I writes DIR/part-I and goes on there when Slurm starts it again; the
# merged results are DIR/results.json, and the logs DIR/slurm-*.log. SBATCH OPTIONs are those of the array's tasks.
# --wait returns when all is done, with the exit code of the whole run. ATTNBENCH names the program (default:
# attnbench in PATH, else build/quickstart/attnbench of this repository).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() { sed -n '2,/^set /{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }
die() {
  printf 'submit.sh: %s\n' "$*" >&2
  exit 2
}

wait=()
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  usage
  exit 0
fi
if [[ ${1:-} == --wait ]]; then
  wait=(--wait)
  shift
fi
[[ $# -ge 2 ]] || die "give SHARDS and DIR; --help tells more"
shards=$1 dir=$2
shift 2
[[ $shards =~ ^[1-9][0-9]{0,5}$ ]] || die "SHARDS is '$shards'; it is a number from 1"
options=()
while [[ $# -gt 0 && $1 != -- ]]; do
  options+=("$1")
  shift
done
[[ ${1:-} == -- && $# -ge 2 ]] || die "give -- and the arguments of attnbench run; --help tells more"
shift

program=${ATTNBENCH:-}
[[ -n $program ]] || program=$(command -v attnbench || true)
[[ -n $program ]] || program=$here/../../build/quickstart/attnbench
[[ -x $program ]] || die "no program $program; build it (./scripts/quickstart.sh) or name it with ATTNBENCH"
command -v sbatch >/dev/null || die "no sbatch here: this is no Slurm cluster"
ATTNBENCH=$(realpath "$program")
export ATTNBENCH
mkdir -p "$dir"
dir=$(realpath "$dir")

# A mistake in the sweep or the options shows here, not in every task.
"$ATTNBENCH" run "$@" --device cpu --dry-run >/dev/null

array=$(sbatch --parsable --array="1-$shards" --output="$dir/slurm-%A_%a.log" "${options[@]}" \
  "$here/sweep.sbatch" "$dir" "$shards" "$@")
array=${array%%;*}
echo "array job $array: $shards tasks, each writes $dir/part-I"
# Also behind tasks that failed: a case that is incorrect is a result.
rc=0
merge=$(sbatch --parsable "${wait[@]}" --dependency="afterany:$array" --output="$dir/slurm-merge-%j.log" \
  "$here/merge.sbatch" "$dir" "$shards") || rc=$?
echo "merge job ${merge%%;*}: writes $dir/results.json"
exit "$rc"
