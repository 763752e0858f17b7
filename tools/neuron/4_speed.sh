#!/bin/bash
# How fast: a step in the shape of Llama 3 8B with 2 layers and tp over the cores of a chip, beside
# what `plan` reckons by hardware/trn2.48xlarge.toml, whose efficiencies are assumed. The measured
# rates are in OUT/4_speed/measured.toml, for `plan --hardware`.
#
#   RANKS     cores to use, which is tp (4)
#   SHAPE     8b, or tiny to try the call itself
#   MPIRUN    how ranks are started (mpirun --oversubscribe --bind-to none)
#
# Tried: on the stand-in of tests/neuron, with tiny and 2 ranks. Untried: on a Trainium.
LIMIT=${LIMIT:-3600}
# shellcheck source=tools/neuron/common.sh
. "$(dirname "$0")/common.sh"

speed() { step "$1" 1800 env OMP_NUM_THREADS=1 "$PYTHON" "$root/tools/neuron/speed.py" \
  --longhaul "$longhaul" --runs "$runs" --ranks "${RANKS:-4}" --shape "${SHAPE:-8b}" \
  --mpirun "${MPIRUN:-mpirun --oversubscribe --bind-to none}" --seq-len "$2"; }
if [ "${SHAPE:-8b}" = tiny ]; then
  speed short 64
else
  speed 2k 2048
  speed 8k 8192
fi
finish
