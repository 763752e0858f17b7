#!/bin/bash
# Sourced by the calls of this folder, which run on a Trainium2 or Trainium3, in the source tree:
# those of tools/gpu, with the environment that has torch_neuronx.
#
#   N_name.sh [STEP...]   all steps of the call, or those that are named
#   OUT       where everything is written (neuron-results); OUT/neff has what was compiled
#   PYTHON    the interpreter of the environment (python3)
#   BIN, LIMIT   as in tools/gpu/common.sh
export DEVICE=neuron OUT=${OUT:-neuron-results} PYTHON=${PYTHON:-python3}
# shellcheck source=tools/gpu/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../gpu/common.sh"
# run.neuron_python is the python3 of PATH.
PATH=$(dirname "$(command -v "$PYTHON")"):$PATH
export TORCH_NEURONX_NEFF_CACHE_DIR=${TORCH_NEURONX_NEFF_CACHE_DIR:-$OUT/neff}
export TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR=${TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR:-$OUT/neff-local}
runs=$OUT/$call
rm -rf "$runs"
mkdir -p "$runs" "$TORCH_NEURONX_NEFF_CACHE_DIR"
compiled() { find "$TORCH_NEURONX_NEFF_CACHE_DIR" -name '*.neff' | wc -l; }
export -f compiled
