#!/usr/bin/env bash
# code_size_test.sh CUOBJDUMP LIST OBJECTS...: the machine code of the Hopper kernels must not outgrow LIST by more than
# 4 %, because a kernel among a model's other kernels finds no cache that holds its code. LIST has a line per kernel (of
# bf16: fp16 is the same source): folder, instance or function, bytes. Kernels without a line, and lines without a kernel,
# fail too. CODE_SIZES=write writes LIST anew.
set -euo pipefail
cuobjdump=$1
list=$2
shift 2
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
number=0
for object in "$@"; do  # objects of two folders may share a name
  mkdir "$folder/$((++number))"
  (cd "$folder/$number" && "$cuobjdump" -xelf all "$object" > /dev/null)
done
# A kernel is a section: number, name, type, address, offset, size in hexadecimal digits.
found=$(find "$folder" -name '*.cubin' -exec readelf -SW {} + 2> /dev/null | sed -nE 's/.* \.text\.([^ ]+) +PROGBITS +[0-9a-f]+ +[0-9a-f]+ +([0-9a-f]+) .*/\1 \2/p' |
  while read -r symbol size; do
    [[ $symbol == *fp16_* || ! $symbol =~ (sm90_[a-z]+) ]] && continue
    kernel=${BASH_REMATCH[1]}
    if [[ $symbol =~ Choice_(bf16_[a-z0-9_]*[a-z0-9])E ]]; then
      kernel+=" ${BASH_REMATCH[1]}"
      [[ $symbol == *WithoutWindows* ]] && kernel+=_without_windows
      [[ $symbol == *FromList* ]] && kernel+=_from_list
    elif [[ $symbol =~ [0-9]([a-z_]+_kernel)(IL[ib]([0-9]+))? ]]; then
      kernel+=" ${BASH_REMATCH[1]}${BASH_REMATCH[3]:+_${BASH_REMATCH[3]}}"
    fi
    echo "$kernel $((16#$size))"
  done | sort)
if [[ ${CODE_SIZES:-} == write ]]; then
  printf '%s\n' "$found" > "$list"
  exit
fi
printf '%s\n' "$found" | awk -v list="$list" '
  BEGIN { while ((getline line < list) > 0) { split(line, part, " "); most[part[1] " " part[2]] = part[3] } }
  {
    name = $1 " " $2
    if (!(name in most)) { print name ": " $3 " bytes of code, and no line in " list; failed = 1 }
    else if ($3 > most[name] * 1.04) { print name ": " $3 " bytes of code, more than 4 % over the " most[name] " of " list; failed = 1 }
    seen[name] = 1; ++kernels
  }
  END {
    for (name in most) if (!(name in seen)) { print name ": stands in " list ", and no object holds it"; failed = 1 }
    if (failed) print "If this is meant: CODE_SIZES=write ctest -R Sass.CodeSizes, and say in LADDER.md why"
    else print kernels " kernels: none outgrew its line"
    exit failed
  }'
