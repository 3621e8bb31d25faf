#!/usr/bin/env bash
# overlap_test.sh CUOBJDUMP INSTANCES OBJECTS...: in the machine code of sm90_prefill for 16-bit types and head_dim 128 to
# 256 (of bf16: fp16 is the same source), every softmax of the loop over KV blocks must run while the product with V is in
# flight: between the wait that leaves one group of products in flight (DEPBAR.LE gsb0, 0x1) and the wait for the last
# (0x0) lies an exponential (MUFU.EX2) for each score, 64, 48 or 32 per thread. A kernel has two such places, in `short`
# one. In 8 bits softmax runs beside other warpgroups' products instead. No kernel of sm90_prefill may hold a BRA.DIV, the
# sign that ptxas lost that the warp which issues copies goes one way: its loop then takes twice as long.
# INSTANCES is instances.def: each of its rows must be met. Some rows are compiled twice (kernel.cuh).
set -euo pipefail
cuobjdump=$1
instances=$2
shift 2
expected=$(grep -cE '^INSTANCE\(' "$instances")
for object in "$@"; do
  "$cuobjdump" -sass "$object"
done | awk -v expected="$expected" '
  function close_place() { if (open && count < needed) lost = lost sprintf(" %d of %d exponentials at /*%s*/;", count, needed, at); open = 0 }
  function close_kernel() {
    close_place()
    if (name != "") {
      ++kernels
      if (places < least) lost = lost sprintf(" %d waits that leave products in flight, not %d or more;", places, least)
      if (divergent) lost = lost sprintf(" %d branches on lanes (BRA.DIV);", divergent)
      if (lost != "") { print "lost in " name ":" lost; failed = 1 }
    }
    name = ""; needed = 0; least = 0; places = 0; divergent = 0; lost = ""
  }
  /Function : / { close_kernel() }
  /Function : .*prefill_kernel.*Choice_bf16_/ {
    name = $3
    row = name
    sub(/.*Choice_bf16_/, "", row)
    sub(/EE.*/, "", row)
    if (!(row in met)) { met[row]; ++rows }
    needed = name ~ /bf16_(d128|d192_v128)_/ ? 64 : name ~ /bf16_d192_/ ? 48 : name ~ /bf16_d256_/ ? 32 : 0
    least = !needed ? 0 : name ~ /_short/ ? 1 : 2
  }
  needed && /WARPGROUP.DEPBAR.LE gsb0, 0x1/ { close_place(); open = 1; count = 0; at = $1; gsub("[^0-9a-f]", "", at); ++places }
  needed && /WARPGROUP.DEPBAR.LE gsb0, 0x0/ { close_place() }
  needed && /MUFU.EX2/ { ++count }
  name != "" && /BRA.DIV/ { ++divergent }
  END {
    close_kernel()
    if (rows != expected) { print "rows of the table of instances whose bf16 kernels were found: " rows + 0 " of " expected; failed = 1 }
    if (!failed) print kernels " kernels of " rows " rows: no branches on lanes; in 16 bits at head_dim 128 to 256 every softmax beside products"
    exit failed
  }'
