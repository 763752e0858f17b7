#!/bin/bash
# Once more what 1 to 4 and 6 have shown and what has been mended since, and the kernels that take
# most of a step looked at with ncu.
#
#   AGAIN     steps of the other calls, "2_training.bf16 4_whole_steps.8b_2k ..."; without
#             it all that failed in OUT
#   KERNELS   a pattern of kernel names for ncu
LIMIT=${LIMIT:-540}
# shellcheck source=tools/gpu/common.sh
. "$(dirname "$0")/common.sh"

AGAIN=${AGAIN:-$(for old in "$OUT"/[1-46]_*.table; do
  [ -s "$old" ] && awk -v call="$(basename "$old" .table)" \
    '/ (FAILED|too slow|no time) /{print call "." $1}' "$old"
done)}
mkdir -p "$OUT/again"
for name in $AGAIN; do
  step "$name" 150 env OUT="$OUT/again" DEVICE="$DEVICE" BIN="$BIN" PYTHON="$PYTHON" \
    "$here/${name%%.*}.sh" "${name#*.}"
done
if on_gpu; then
  step profile 150 ncu --set basic --launch-skip 200 --launch-count 40 \
    ${KERNELS:+--kernel-name "regex:$KERNELS"} --export "$OUT/kernels" -f \
    "$PYTHON" "$here/whole_step.py" --longhaul "$longhaul" --device cuda --shape 8b \
    --seq-len 2048 --micro-size 4 --steps 3 --dir "$OUT/whole/profile"
else
  step nothing 10 echo "result: nothing to look at without a GPU"
fi
finish
