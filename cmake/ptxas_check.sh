#!/bin/sh
# ptxas_check.sh COMMAND...: runs COMMAND, a compilation with -Xptxas=-v, and fails where ptxas reports what makes a tuned
# kernel slow without making it wrong: spills, local memory, or a C75xx note (wgmma serialised, register limits ignored).
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
"$@" 2>"$log"
status=$?
bad='\(C75[0-9][0-9]\)|(^|[^0-9])[1-9][0-9]* bytes (stack frame|spill stores|spill loads)'
if [ $status -eq 0 ] && grep -Eq "$bad" "$log"; then
  grep -E "Compiling entry function|$bad" "$log" >&2
  echo "ptxas_check: a kernel above spills, uses local memory or has its wgmma serialised: change it so that it does not" >&2
  exit 1
fi
grep -Ev '^ptxas info|^ +0 bytes stack frame' "$log" >&2
exit $status
