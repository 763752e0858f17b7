#!/bin/bash
# Several ranks of one machine, a core each: tp, pp and ZeRO 3 against the curves of a CPU, twice
# the same, a rank that is stopped, and saves.
#
#   RANKS     cores to use (4, those of a chip of trn2)
#   MPIRUN    how ranks are started (mpirun --oversubscribe --bind-to none)
#
# Tried: on the stand-in of tests/neuron, with 2 ranks. Untried: on a Trainium.
LIMIT=${LIMIT:-3000}
# shellcheck source=tools/neuron/common.sh
. "$(dirname "$0")/common.sh"

for name in tp2 pp2 zero3 cp2 twice stopped save; do
  step "$name" 900 env OMP_NUM_THREADS=1 "$PYTHON" "$here/several.py" --longhaul "$longhaul" \
    --runs "$runs" --device "$DEVICE" --ranks "${RANKS:-4}" \
    --mpirun "${MPIRUN:-mpirun --oversubscribe --bind-to none}" "$name"
done
finish
