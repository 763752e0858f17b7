#!/bin/bash
# Whole steps: the shape of an 8B model with 8 layers at 1k, 2k and 8k tokens a sequence, a
# model of 0.5B, and Qwen2.5's of 0.5B and 1.5B, with transformers eager and compiled in turn
# (compiling takes a minute), and LoRA of the whole 8B model, of which 16 GB are written first.
# About eight minutes of a GPU.
LIMIT=${LIMIT:-570}
# shellcheck source=tools/gpu/common.sh
. "$(dirname "$0")/common.sh"

steps() {  # NAME SHAPE SEQ_LEN MICRO_SIZE [--accumulate N] [--lora N]
  step "$1" 110 "$PYTHON" "$here/whole_step.py" --longhaul "$longhaul" --device "$DEVICE" \
    --shape "$2" --seq-len "$3" --micro-size "$4" --dir "$OUT/whole/$1" "${@:5}"
}
peer() {  # NAME SHAPE SEQ_LEN MICRO_SIZE [--accumulate N] [--compile] [--lora N]
  step "$1" 120 "$PYTHON" "$here/whole_step.py" --peer --device "$DEVICE" \
    --shape "$2" --seq-len "$3" --micro-size "$4" --dir "$OUT/whole/$1" "${@:5}"
}
if on_gpu; then
  steps 8b_1k 8b 1024 8
  peer 8b_1k_eager 8b 1024 8
  steps 8b_2k 8b 2048 4
  peer 8b_2k_compile 8b 2048 4 --compile
  steps 8b_8k 8b 8192 1
  peer 8b_8k_eager 8b 8192 1
  steps 0.5b 0.5b 2048 4
  peer 0.5b_eager 0.5b 2048 4
  steps qwen_0.5b qwen2.5-0.5b 1024 16 --accumulate 8
  steps qwen_1.5b qwen2.5-1.5b 1024 16 --accumulate 4
  peer qwen_1.5b_eager qwen2.5-1.5b 1024 8 --accumulate 8
  steps 8b_lora 8b-whole 2048 1 --lora 16
  peer 8b_peft 8b-whole 2048 1 --lora 16
else
  steps tiny tiny 64 2
  peer tiny_eager tiny 64 2
  steps tiny_lora tiny 64 2 --lora 4
  peer tiny_peft tiny 64 2 --lora 4
fi
finish
