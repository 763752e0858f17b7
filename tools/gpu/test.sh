#!/bin/bash
# make test-gpu: the tests that need a GPU, of the CUDA build. Fails where there is no GPU and
# where a test was skipped or none ran: green means that they ran.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build-cuda}
if ! gpus=$(nvidia-smi -L 2>/dev/null) || [ -z "$gpus" ]; then
  echo "test-gpu: no GPU here (nvidia-smi -L shows none), so nothing was tested" >&2
  exit 1
fi
echo "$gpus"
make cuda
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
tools/test.sh "$build" -L '^gpu$' | tee "$log" || status=$?
summary=$(tail -n 1 "$log")
if [[ $summary =~ ^0\ passed ]] || [[ $summary == *skipped* ]]; then
  echo "test-gpu: not every test ran: $summary" >&2
  exit 1
fi
exit "$status"
