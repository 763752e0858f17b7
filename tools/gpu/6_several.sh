#!/bin/bash
# Several GPUs of one machine, the first hour with two or more: the ways that NCCL takes and their
# rates, and what a collective takes of the host; tp, pp, ZeRO 3, cp and ep against curves of a
# CPU; twice the same; a rank that is stopped; GPU 0 while ranks save; a step with tp beside what
# `plan` reckons. About ten minutes.
#
#   RANKS     one GPU each (as many as nvidia-smi shows; 2 without a GPU)
#   MPIRUN    how ranks are started (mpirun --oversubscribe --bind-to none)
#   PLUGIN    with DEVICE=plugin: the device's library
LIMIT=${LIMIT:-1200}
# shellcheck source=tools/gpu/common.sh
. "$(dirname "$0")/common.sh"

if [ -z "${RANKS:-}" ]; then
  RANKS=2
  if on_gpu; then RANKS=$(nvidia-smi -L | wc -l); fi
fi
if [ "$RANKS" -lt 2 ]; then
  echo "$call: one GPU here; 1_first_contact.sh to 5_again.sh are for one" >&2
  exit 2
fi
runs=$OUT/several
rm -rf "$runs"
mkdir -p "$runs"
for name in links tp2 pp2 zero3 cp2 ep2 twice stopped save exposed; do
  step "$name" 150 env OMP_NUM_THREADS=1 "$PYTHON" "$here/several.py" --longhaul "$longhaul" \
    --runs "$runs" --device "$DEVICE" --plugin "${PLUGIN:-}" --ranks "$RANKS" \
    --mpirun "${MPIRUN:-mpirun --oversubscribe --bind-to none}" "$name"
done
finish
