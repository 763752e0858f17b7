#!/bin/bash
# Ceilings and candidates: products, copies, attention by each of LibTorch's kernels, the
# weight gradient in fp32, chunks of the head, AdamW; random data, medians. About eight
# minutes of a GPU. Needs the torch package of PYTHON.
LIMIT=${LIMIT:-540}
# shellcheck source=tools/gpu/common.sh
. "$(dirname "$0")/common.sh"

for name in products copies attention weight_gradient head adamw; do
  step "$name" 150 "$PYTHON" "$here/ceilings.py" "$name" --device "$DEVICE" \
    --out "$OUT/$call.$name.json"
done
if on_gpu && [ -x "$BIN/cuda_kernels_bench" ]; then
  step own_kernels 120 "$BIN/cuda_kernels_bench"
fi
finish
