#!/usr/bin/env bash
# overlap_test.sh CUOBJDUMP INSTANCES OBJECTS...: in the machine code of sm90_prefill for head_dim 128 to 256 (of bf16: fp16
# is the same source), every softmax behind a product with K must run while the product with V is in flight: between the
# wait that leaves one group of products in flight (DEPBAR.LE gsb0, 0x1) and the wait for the last (0x0) lies an
# exponential (MUFU.EX2) for each score, 64, 48 or 32 per thread. A kernel has two such places or more. With queries in
# e4m3 softmax runs beside other warpgroups' products instead. Nor may a kernel hold a BRA.DIV, the sign that ptxas lost
# that the warp which issues copies goes one way: its loop then takes twice as long.
# INSTANCES is instances.def. It says how many kernels the objects must hold.
set -euo pipefail
cuobjdump=$1
instances=$2
shift 2
names='(e4m3_kv_|int8_)?d128_|d192_|(e4m3_kv_)?d256_'
expected=$(grep -cE "^INSTANCE\(($names)" "$instances")
for object in "$@"; do
  "$cuobjdump" -sass "$object"
done | awk -v expected="$expected" '
  function close_place() { if (open && count < needed) lost = lost sprintf(" %d of %d exponentials at /*%s*/;", count, needed, at); open = 0 }
  function close_kernel() {
    close_place()
    if (needed) {
      ++kernels
      if (places < 2) lost = lost sprintf(" %d waits that leave products in flight, not 2 or more;", places)
      if (divergent) lost = lost sprintf(" %d branches on lanes (BRA.DIV);", divergent)
      if (lost != "") { print "lost in " name ":" lost; failed = 1 }
    }
    needed = 0; places = 0; divergent = 0; lost = ""
  }
  /Function : / { close_kernel(); name = $3; needed = name ~ /prefill_kernel.*bf16_((e4m3_kv_|int8_)?d128|d192_v128)_/ ? 64 : name ~ /prefill_kernel.*bf16_d192_/ ? 48 : name ~ /prefill_kernel.*bf16_(e4m3_kv_)?d256_/ ? 32 : 0 }
  needed && /WARPGROUP.DEPBAR.LE gsb0, 0x1/ { close_place(); open = 1; count = 0; at = $1; gsub("[^0-9a-f]", "", at); ++places }
  needed && /WARPGROUP.DEPBAR.LE gsb0, 0x0/ { close_place() }
  needed && /MUFU.EX2/ { ++count }
  needed && /BRA.DIV/ { ++divergent }
  END {
    close_kernel()
    if (kernels != expected) { print "kernels of bf16, head_dim 128 to 256 found: " kernels + 0 ", not the " expected " of the table of instances"; failed = 1 }
    if (!failed) print kernels " kernels: every softmax beside products, no branches on lanes"
    exit failed
  }'
