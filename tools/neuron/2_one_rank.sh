#!/bin/bash
# One rank: a small Llama for ten steps against the CPU's losses, in fp32 and bf16. An operation
# that ran on the CPU ends a run by name. How many programs were compiled, whether later steps
# and a second start compile more, and what a step takes.
#
# Tried: on the stand-in of tests/neuron. Untried: on a Trainium, where the first step compiles
# some hundred programs: raise LIMIT.
LIMIT=${LIMIT:-3000}
# shellcheck source=tools/neuron/common.sh
. "$(dirname "$0")/common.sh"

one() { step "$1" 2000 env OMP_NUM_THREADS=1 "$PYTHON" "$here/train.py" --longhaul "$longhaul" \
  --runs "$runs" --device "$DEVICE" --name "$1" "${@:2}"; }
# shellcheck disable=SC2317  # run by a step
times() {
  "$PYTHON" - "$runs/$1/metrics.jsonl" "$(compiled)" <<'READ'
import json, statistics, sys
steps = [record for line in open(sys.argv[1]) if "grad_norm" in (record := json.loads(line))]
seconds = [record["step_time_s"] for record in steps]
print(f"result: {sys.argv[2]} programs; the first step {seconds[0]:.1f} s, the others "
      f"{1e3 * statistics.median(seconds[1:]):.1f} ms")
READ
}
# shellcheck disable=SC2317
nothing_new() {  # after three steps, ten: no step compiles another program
  local before
  "$@" --steps 3 --name three && before=$(compiled) && "$@" --steps 10 --name ten || return 1
  echo "result: $before programs after 3 steps, $(compiled) after 10 and a second start"
  [ "$before" = "$(compiled)" ]
}
export -f times nothing_new
export runs PYTHON
one fp32 --tolerance 1e-4 --set 'precision.compute="fp32"'
step fp32-times 30 bash -c 'times fp32'
one bf16 --tolerance 2e-2
step bf16-times 30 bash -c 'times bf16'
step shapes 900 bash -c 'nothing_new "$@"' - env OMP_NUM_THREADS=1 "$PYTHON" "$here/train.py" \
  --longhaul "$longhaul" --runs "$runs" --device "$DEVICE" --tolerance 2e-2 --set data.seq_len=48
one resume --resume --tolerance 2e-2
finish
