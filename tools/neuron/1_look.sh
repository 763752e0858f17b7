#!/bin/bash
# What is on the machine: instance, driver, runtime, environment, network, and the doctor on a
# small run. A minute, and nothing is trained.
#
# Tried: on the stand-in of tests/neuron. Untried: on a Trainium.
LIMIT=${LIMIT:-240}
# shellcheck source=tools/neuron/common.sh
. "$(dirname "$0")/common.sh"

# shellcheck disable=SC2317  # run by a step
machine() {
  echo "result: $(cat /sys/class/dmi/id/product_name 2>/dev/null), $(find /dev -maxdepth 1 \
    -name 'neuron[0-9]*' | wc -l) devices, driver $(modinfo -F version neuron 2>/dev/null || echo none)"
  neuron-ls || true
  ls /opt/aws/neuron/lib /opt/aws/neuron/bin || true
  dpkg -l 'aws-neuronx-*' || true
  env | grep -E '^(NEURON|TORCH_NEURONX|FI_)' || true
}
# shellcheck disable=SC2317
environment() {
  "$PYTHON" "$root/longhaul/neuron/look.py" | tee "$OUT/look.json" &&
    "$PYTHON" - "$OUT/look.json" <<'READ'
import json, sys
found = json.load(open(sys.argv[1]))
print("result:", "; ".join(f"{key} {value}" for key, value in found.items() if "version" in key or key in ("torch", "native")))
READ
}
# shellcheck disable=SC2317
network() {
  local count=0 device
  for device in /sys/class/infiniband/*; do
    [ "$(basename "$(readlink -f "$device/device/driver")")" != efa ] || count=$((count + 1))
  done
  echo "result: $count EFA devices"
  /opt/amazon/efa/bin/fi_info -p efa || true
}
# shellcheck disable=SC2317
doctor() {
  "$PYTHON" - "$here" "$longhaul" "$runs" <<'WRITE'
import pathlib, sys, types
sys.path.insert(0, sys.argv[1])
from train import command_of
command_of(types.SimpleNamespace(longhaul=sys.argv[2], runs=pathlib.Path(sys.argv[3]), steps=3), "look", "neuron", [])
WRITE
  "$longhaul" doctor "$runs/look.toml" --set 'run.device="neuron"'
}
export -f machine environment network doctor
export root here longhaul runs
step machine 30 bash -c machine
step version 30 "$longhaul" --version
step environment 120 bash -c environment
step network 30 bash -c network
step doctor 200 bash -c doctor
finish
