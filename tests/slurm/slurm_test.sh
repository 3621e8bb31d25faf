#!/usr/bin/env bash
# Starts a Slurm cluster of this machine alone and runs scripts/slurm/submit.sh on it.
#   slurm_test.sh ATTNBENCH SOURCE_DIR SCRATCH_DIR
# Exit code 77: skipped, with the reason, where the cluster cannot be started.
set -euo pipefail
program=$1 source=$2 scratch=$3

skip() {
  echo "skipped: $*"
  exit 77
}
fail() {
  echo "FAILED: $*"
  tail -n 30 "$work"/*.log "$work"/out/*.log 2>/dev/null || true
  exit 1
}
PATH=$PATH:/usr/sbin:/sbin
[[ $(id -u) -eq 0 ]] || skip "only root can start slurmd"
for daemon in munged slurmctld slurmd sbatch squeue; do
  command -v "$daemon" >/dev/null || skip "no $daemon: apt-get install slurm-wlm munge"
done

work=$scratch/slurm
pids=()
# shellcheck disable=SC2317  # called by the trap
stop() {
  for ((i = ${#pids[@]} - 1; i >= 0; --i)); do kill "${pids[i]}" 2>/dev/null || true; done
  wait 2>/dev/null || true
}
trap stop EXIT
rm -rf "$work"
mkdir -p "$work"/{state,spool,out}
# munged wants a socket folder of its owner alone, above which nobody else may write.
run=$(mktemp -d /run/attnbench-slurm.XXXXXX 2>/dev/null) || skip "cannot write to /run"
trap 'stop; rm -rf "$run"' EXIT
chmod 755 "$run"
dd if=/dev/urandom of="$run/key" bs=128 count=1 status=none
chmod 400 "$run/key"
munged --foreground --force --key-file="$run/key" --socket="$run/socket" --pid-file="$run/munged.pid" \
  --seed-file="$run/seed" --log-file="$work/munged.log" 2>"$work/munged-start.log" &
pids+=($!)

host=$(hostname -s)
base=$((20000 + $$ % 20000))
cat >"$work/slurm.conf" <<CONF
ClusterName=attnbench
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$run/socket
CredType=cred/munge
SlurmctldPort=$base
SlurmdPort=$((base + 1))
SlurmctldPidFile=$run/slurmctld.pid
SlurmdPidFile=$run/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=500 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
CONF
export SLURM_CONF=$work/slurm.conf
for _ in {1..50}; do
  [[ -S $run/socket ]] && break
  sleep 0.1
done
[[ -S $run/socket ]] || skip "munged does not start here: $(cat "$work/munged-start.log")"
slurmctld -D -c 2>"$work/slurmctld-start.log" &
pids+=($!)
slurmd -D -c 2>"$work/slurmd-start.log" &
pids+=($!)
# No `grep -q` behind a pipe: it ends at the first match, and pipefail then tells of the writer's SIGPIPE.
for _ in {1..150}; do
  [[ $(sinfo -h -o %T 2>/dev/null) == *idle* ]] && break
  sleep 0.2
done
[[ $(sinfo -h -o %T 2>/dev/null) == *idle* ]] || skip "the node does not become idle: $(tail -n 3 "$work"/slurm*.log)"

cat >"$work/sweep.yaml" <<'YAML'
name: slurm
sweeps: [{batch: [q5, 3q7s40, q64], heads: 4/2, head_dim: [8, 16], kv: [packed, paged]}]
YAML
export ATTNBENCH=$program
arguments=("$work/sweep.yaml" --device cpu --no-time --threads 1)

# Three shards and the merge behind them.
timeout 120 "$source/scripts/slurm/submit.sh" --wait 3 "$work/out" --mem=100 -- "${arguments[@]}" || fail "submit.sh: $?"
"$program" run "${arguments[@]}" --out "$work/whole" --quiet >/dev/null || fail "the whole sweep"
names() { grep -o '"run_name":"[^"]*"' "$1"; }
[[ -s $work/out/results.json ]] || fail "no merged results"
diff <(names "$work/out/results.json") <(names "$work/whole/results.json") || fail "other runs than the whole sweep has"
[[ $(grep -c '"status":"pass"' "$work/out/results.json") -eq 12 ]] || fail "not twelve passes"
for i in 1 2 3; do [[ -s $work/out/part-$i/journal.jsonl ]] || fail "shard $i ran nothing"; done

# The verdict of the whole comes back: a kernel that the cpu device has not runs nothing.
rc=0
timeout 120 "$source/scripts/slurm/submit.sh" --wait 2 "$work/none" --mem=100 -- "${arguments[@]}" --kernel cuda_simt \
  2>"$work/none.log" || rc=$?
if [[ $("$program" kernels) == *cuda_simt* ]]; then
  [[ $rc -eq 6 ]] || fail "exit code $rc, not 6, of a sweep that ran nothing"
else
  [[ $rc -eq 2 ]] || fail "exit code $rc, not 2, of an unknown kernel"
fi

# Mistakes are told before anything is submitted.
before=$(squeue -h | wc -l)
rc=0
"$source/scripts/slurm/submit.sh" 2 "$work/bad" -- "$work/sweep.yaml" --device cpu --set nmae=1 2>"$work/bad.log" || rc=$?
[[ $rc -eq 2 && $(squeue -h | wc -l) -eq $before ]] || fail "a bad option was submitted ($rc)"
echo "passed: three shards, a merge, verdicts and mistakes"
