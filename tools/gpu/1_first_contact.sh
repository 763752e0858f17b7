#!/bin/bash
# First contact: libraries, versions, operations against the CPU, NCCL of one rank, then the
# sanitizers over the operations. About six minutes of a GPU.
LIMIT=${LIMIT:-420}
# shellcheck source=tools/gpu/common.sh
. "$(dirname "$0")/common.sh"

# shellcheck disable=SC2317  # run by a step
libraries_found() {
  local binary missing
  for binary in "$BIN"/longhaul*; do
    missing=$(ldd "$binary" | grep 'not found')
    [ -z "$missing" ] || { echo "$binary: $missing"; return 1; }
  done
  echo "result: all found"
}
export -f libraries_found
export BIN
step libraries 30 bash -c libraries_found
step version 30 "$longhaul" --version
step doctor 60 "$longhaul" doctor
if on_gpu; then
  step gpu 20 nvidia-smi
  step operations 120 "$BIN/ops_gpu_test" --gtest_brief=1
  step nccl 60 "$BIN/nccl_test" --gtest_brief=1
  for tool in memcheck initcheck; do
    step "$tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$BIN/ops_gpu_test" --gtest_brief=1
  done
  # Of our own kernels, in bf16: with LibTorch's it takes minutes.
  step racecheck 90 compute-sanitizer --tool racecheck --error-exitcode 1 \
    "$BIN/ops_gpu_test" --gtest_brief=1 \
    --gtest_filter='*Norm*/3:*Loss*/3:*Gated*/3:*Rope*/3:*Embedding*/3'
fi
finish
