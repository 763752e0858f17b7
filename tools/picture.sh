#!/bin/bash
# The picture of the README, from real runs: a small Llama learns a dictionary twice, once
# undisturbed, once killed on the way and started again by the same command. Fails unless every
# loss of both is equal to the last bit.
#
#   PICTURE_DIR   where the runs go (picture-run); earlier contents are removed
#   LONGHAUL      the program (build/bin/longhaul)
set -euo pipefail
cd "$(dirname "$0")/.."

dir=${PICTURE_DIR:-picture-run}
longhaul=${LONGHAUL:-build/bin/longhaul}
python=/usr/bin/python3
steps=300
every=60
saved=180       # the checkpoint that the killed run goes on from
lost=35         # steps after it that are made again

fail() { printf 'picture: %s\n' "$*" >&2; exit 1; }
numbers() { "$python" tools/demo_numbers.py "$@"; }

[ -x "$longhaul" ] || fail "$longhaul is not there; run make program first"
if [ -e "$dir" ] && [ ! -e "$dir/.longhaul-picture" ]; then
  fail "$dir exists and is not an earlier picture's; move it or set PICTURE_DIR"
fi
rm -rf "$dir"
mkdir -p "$dir"
touch "$dir/.longhaul-picture"

"$python" tools/demo_corpus.py "$dir/corpus"
"$longhaul" data train-tokenizer "$dir/corpus/dictionary.jsonl.gz" --vocab-size 16384 \
  --out "$dir/tokenizer"
"$longhaul" data build "$dir/corpus/dictionary.jsonl.gz" --tokenizer "$dir/tokenizer" \
  --out "$dir/data" --holdout 1% --seq-len 256

# The command of both runs, in the array `train`.
command_for() {
  train=("$longhaul" train recipes/demo/pretrain.toml --set "run.dir=$dir/$1"
    --set "run.steps=$steps" --set "checkpoint.every=$every" --set checkpoint.keep=0
    --set "data.train=[{path='$dir/data'}]" --set "data.validation=[]" --set validation.every=0)
}

command_for undisturbed
"${train[@]}"
command_for killed
"${train[@]}" > "$dir/killed.txt" 2>&1 &
victim=$!
manifest=$(printf '%s/killed/checkpoints/step_%08d/manifest.json' "$dir" $saved)
until [ -e "$manifest" ] && [ "$(numbers last "$dir/killed")" -ge $((saved + lost)) ]; do
  kill -0 "$victim" 2>/dev/null || fail "the run ended before it was killed; see $dir/killed.txt"
  sleep 0.05
done
kill -9 "$victim"
wait "$victim" 2>/dev/null || true
echo "killed with -9 after step $(numbers last "$dir/killed"); the same command again:"
"${train[@]}"
numbers resumed "$dir/killed" $saved > /dev/null
"$python" tools/picture.py "$dir/killed" "$dir/undisturbed" docs/resumed.svg \
  "A Llama of 10M parameters learns a dictionary"
