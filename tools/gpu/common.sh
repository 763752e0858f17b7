#!/bin/bash
# Sourced by the calls of this folder: where the program and the libraries are, steps under a
# time limit, and the table at the end.
#
#   N_name.sh [--cpu] [STEP...]   all steps of the call, or those that are named
#   OUT       where everything is written (gpu-results)
#   DEVICE    cuda; cpu (or --cpu): the same at tiny sizes, as far as it goes without a GPU
#   BIN       the programs (bin beside tools, as pack.sh lays them, else build-cuda/bin)
#   PYTHON    the Python whose torch package brings the libraries (python3)
#   LIMIT     seconds of all steps together
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
call=$(basename "$0" .sh)
DEVICE=${DEVICE:-cuda}
wanted=()
for argument in "$@"; do
  case $argument in
    --cpu) DEVICE=cpu ;;
    -*) echo "usage: $call.sh [--cpu] [STEP...]" >&2; exit 2 ;;
    *) wanted+=("$argument") ;;
  esac
done
OUT=$(mkdir -p "${OUT:-gpu-results}" && cd "${OUT:-gpu-results}" && pwd)
PYTHON=${PYTHON:-python3}
LIMIT=${LIMIT:-540}
if [ -z "${BIN:-}" ]; then
  BIN=$root/bin
  [ -x "$BIN/longhaul" ] || BIN=$root/build-cuda/bin
  [ "$DEVICE" = cuda ] || [ -x "$root/bin/longhaul" ] || BIN=$root/build/bin
fi
longhaul=$BIN/longhaul
table=$OUT/$call.table
rm -f "$table"
failed=0
begun=$SECONDS

# LibTorch, cuDNN, cuBLAS and NCCL of that Python's packages, and the bundle's own libraries.
if [ "$DEVICE" = cuda ]; then
  packages=$("$PYTHON" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))') ||
    { echo "$call: $PYTHON has no torch package; name another in PYTHON" >&2; exit 1; }
  libraries=$BIN:$root/lib:$packages/torch/lib
  for folder in "$packages"/nvidia/*/lib; do
    [ -d "$folder" ] && libraries=$libraries:$folder
  done
  export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
[ -x "$longhaul" ] || { echo "$call: no program at $longhaul; see tools/gpu/pack.sh" >&2; exit 1; }

on_gpu() { [ "$DEVICE" = cuda ]; }
row() { printf '%-28s %-9s %7s  %s\n' "$@" | tee -a "$table"; }

# step NAME SECONDS COMMAND...: its output goes to OUT/CALL.NAME.log; the last line of it
# that begins with "result:" stands in the table.
step() {
  local name=$1 limit=$2 from=$SECONDS status=0 left
  shift 2
  if [ ${#wanted[@]} -gt 0 ] && [[ " ${wanted[*]} " != *" $name "* ]]; then return; fi
  left=$((LIMIT - (SECONDS - begun)))
  if [ "$left" -lt 5 ]; then row "$name" "no time" 0 ""; failed=1; return; fi
  [ "$limit" -le "$left" ] || limit=$left
  local log=$OUT/$call.$name.log
  timeout --kill-after=5 "$limit" "$@" > "$log" 2>&1 || status=$?
  local word=ok
  case $status in
    0) ;;
    77) word=skipped ;;
    124 | 137) word="too slow" ;;
    *) word=FAILED ;;
  esac
  if [ $status -ne 0 ] && [ $status -ne 77 ]; then failed=1; fi
  row "$name" "$word" "$((SECONDS - from)) s" \
    "$(grep '^result:' "$log" | tail -n 1 | cut -c 9- || true)"
}

# The table once more, whole; the exit status tells whether a step failed.
finish() {
  [ -s "$table" ] || { echo "$call: no such step: ${wanted[*]}" >&2; exit 2; }
  printf '\n%s on %s, %d s; all of it in %s\n' "$call" "$DEVICE" "$((SECONDS - begun))" "$OUT"
  cat "$table"
  exit $failed
}
