#!/bin/bash
# Training: curves against those of a CPU, which are carried (tools/gpu/curves) or made here
# on the CPU first: fp32, bf16, recomputation, twice the same, save and resume; then every
# family and mask.
# About eight minutes of a GPU.
LIMIT=${LIMIT:-540}
# shellcheck source=tools/gpu/common.sh
. "$(dirname "$0")/common.sh"

runs=$OUT/runs
rm -rf "$runs"
mkdir -p "$runs"
one() { step "$1" 90 "$PYTHON" "$here/train.py" --longhaul "$longhaul" --runs "$runs" \
  --device "$DEVICE" --name "$1" "${@:2}"; }
one fp32 --tolerance 1e-4 --set 'precision.compute="fp32"'
one bf16 --tolerance 2e-2
one selective --tolerance 2e-2 --set 'memory.recompute="selective"'
one full --tolerance 2e-2 --set 'memory.recompute="full"'
one offload --tolerance 2e-2 --set 'memory.recompute="full"' \
  --set memory.offload_activations=true
one twice --twice --set run.deterministic=true
one resume --resume --tolerance 2e-2
step families 150 env OMP_NUM_THREADS=1 "$PYTHON" "$here/families.py" --longhaul "$longhaul" \
  --runs "$runs/families" --device "$DEVICE"
finish
