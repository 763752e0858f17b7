#!/bin/bash
# `longhaul --version` names the version, the commit, the compiler and every library.
set -euo pipefail
output=$("$1" --version)
echo "$output"
head -n1 <<<"$output" | grep -qE '^longhaul [0-9]+\.[0-9]+\.[0-9]+$'
grep -qE '^  commit +([0-9a-f]{12}(-dirty)?|unknown)$' <<<"$output"
grep -qE '^  compiler +(GNU|Clang) [0-9.]+ \([A-Za-z]+\)$' <<<"$output"
for library in LibTorch fmt toml++ CLI11 nlohmann-json simdjson xxHash zlib libsodium libdw cmark-gfm; do
  grep -qE "^  ${library//+/\\+} +[0-9]+(\.[0-9]+)+" <<<"$output" ||
    { echo "no version of $library"; exit 1; }
done
grep -qE '^  HDF5 +([0-9.]+|not built in)$' <<<"$output"
grep -qE '^  MPI +(Open MPI v|MPICH|Intel|not built in)' <<<"$output"

# Verbs that do not compute start in milliseconds: nothing of LibTorch is loaded for them.
for library in torch c10; do
  if ldd "$1" | grep -q "lib$library"; then
    echo "$1 loads lib$library"
    exit 1
  fi
done
