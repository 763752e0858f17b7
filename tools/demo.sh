#!/bin/bash
# The whole job in small, on text that Debian packages carry: text -> tokens -> a model from
# random -> a Hugging Face directory -> pretraining continued on other text, killed once on
# the way -> a directory again. Checks what it claims and exits non-zero where it fails.
#
#   DEMO_SECONDS   training time of the first stage (100); the second takes a third of it
#   DEMO_DIR       where everything goes (demo-run); earlier contents are removed
#   LONGHAUL       the program (build/bin/longhaul)
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${DEMO_SECONDS:-100}
dir=${DEMO_DIR:-demo-run}
longhaul=${LONGHAUL:-build/bin/longhaul}
python=/usr/bin/python3
margin=0.5      # nats below the unigram entropy
# However short the time: 60 steps end 0.36 below the unigram entropy, too little.
least_steps=150
least_more=60

numbers() { "$python" tools/demo_numbers.py "$@"; }
title() { printf '\n== %s\n' "$*"; }
passed() { echo "ok: $*"; }
fail() { printf '\ndemo: FAILED: %s\n' "$*" >&2; exit 1; }
# Prints a command and runs it.
run() { printf '$ %s\n' "${*/#$longhaul/longhaul}"; "$@"; }
# Loss of a model on a store; the same batches as in the run, so the same bits.
loss_of() {
  local json
  json=$("$longhaul" eval "$1" --data "$2" --seq-len 256 --micro-size 8 --json) ||
    fail "longhaul eval $1 --data $2"
  numbers loss "$json"
}
# same WHAT A B
same() {
  numbers equal "$2" "$3" || fail "$1: $2 and $3 are not the same"
  passed "$1: $2"
}

[[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "DEMO_SECONDS is '$seconds', not a number of seconds"
[ -x "$longhaul" ] || fail "$longhaul is not there; run make first"
# Only what an earlier demo left is removed.
if [ -e "$dir" ] && [ ! -e "$dir/.longhaul-demo" ]; then
  fail "$dir exists and is not an earlier demo's; move it or set DEMO_DIR"
fi
rm -rf "$dir"
mkdir -p "$dir/data"
touch "$dir/.longhaul-demo"
# The recipes name demo-run; another directory is set over them.
store=$dir/data
pretrain=(recipes/demo/pretrain.toml --set "run.dir=$dir/pretrain"
  --set "data.train=[{path='$store/dictionary'}]"
  --set "data.validation=[{name='dictionary',path='$store/dictionary-val'}]")
continue=(recipes/demo/continue.toml --set "run.dir=$dir/continue"
  --set "model.config=$dir/hf-pretrain" --set "init.weights=$dir/hf-pretrain"
  --set "data.train=[{path='$store/manuals',weight=0.8},{path='$store/dictionary',weight=0.2}]"
  --set "data.validation=[{name='manuals',path='$store/manuals-val'},{name='dictionary',path='$store/dictionary-val'}]")
if [ "$dir" = demo-run ]; then
  pretrain=(recipes/demo/pretrain.toml)
  continue=(recipes/demo/continue.toml)
fi

title "1/7 Real text, whole documents, duplicates removed"
"$python" tools/demo_corpus.py "$dir/corpus"

title "2/7 A tokenizer of 16384 tokens from the dictionary; token stores with 1% held out"
run "$longhaul" data train-tokenizer "$dir/corpus/dictionary.jsonl.gz" \
  --vocab-size 16384 --out "$dir/tokenizer"
run "$longhaul" data build "$dir/corpus/dictionary.jsonl.gz" --tokenizer "$dir/tokenizer" \
  --out "$store/dictionary" --holdout 1% --seq-len 256
run "$longhaul" data build "$dir/corpus/manuals.jsonl" --tokenizer "$dir/tokenizer" \
  --out "$store/manuals" --holdout 1% --seq-len 256
unigram=$(numbers entropy "$store/dictionary-val")
echo "A model that knows only how frequent each token is has a loss of $unigram" \
  "on the held-out dictionary."

title "3/7 Pretraining from random"
"$longhaul" train "${pretrain[@]}" --set "run.dir=$dir/probe" --set run.steps=12 \
  --set validation.batches=1 --set log.tensorboard=false > "$dir/probe.txt" 2>&1 ||
  { cat "$dir/probe.txt"; fail "the 12 steps that measure this machine's speed"; }
rate=$(numbers rate "$dir/probe")
rm -rf "$dir/probe"
steps=$("$python" -c "print(max($least_steps, round($seconds * $rate / 2048)))")
more=$((steps / 3 > least_more ? steps / 3 : least_more))
echo "${rate%.*} tokens/s here: $steps steps of 2048 tokens for about $seconds s"
run "$longhaul" train "${pretrain[@]}" --set "run.steps=$steps"
loss=$(numbers validation "$dir/pretrain" dictionary last)
numbers below "$loss" "$unigram" "$margin" ||
  fail "held-out loss $loss is not $margin below the unigram entropy $unigram"
passed "held-out loss $loss, more than $margin nat below the unigram entropy $unigram"

title "4/7 Export to a Hugging Face directory"
run "$longhaul" export "$dir/pretrain" --out "$dir/hf-pretrain" --dtype bf16
same "the export's loss is the run's last validation" \
  "$(loss_of "$dir/hf-pretrain" "$store/dictionary-val")" "$loss"
manuals=$(loss_of "$dir/hf-pretrain" "$store/manuals-val")
echo "On the manuals, which it has never seen, its loss is $manuals."

title "5/7 Continue pretraining on other text, and kill -9 on the way"
every=$((more / 4))
again=("$longhaul" train "${continue[@]}" --set "run.steps=$more" --set "checkpoint.every=$every")
printf '$ %s\n' "${again[*]/#$longhaul/longhaul}"
"${again[@]}" > "$dir/killed.txt" 2>&1 &
victim=$!
manifest=$(printf '%s/continue/checkpoints/step_%08d/manifest.json' "$dir" "$every")
killed=no
while kill -0 "$victim" 2>/dev/null; do
  # A few steps past a checkpoint: they are lost and done again.
  if [ -e "$manifest" ] && [ "$(numbers last "$dir/continue")" -ge $((every + 3)) ]; then
    kill -9 "$victim"
    killed=yes
    break
  fi
  sleep 0.05
done
wait "$victim" 2>/dev/null || true
sed 's/^/  | /' "$dir/killed.txt"
[ $killed = yes ] || fail "the run ended before it could be killed; see $dir/killed.txt"
echo "  | (killed with -9 after step $(numbers last "$dir/continue"))"
echo "The same command again:"
run "${again[@]}"
from=$(numbers resumed "$dir/continue" "$every") || fail "the run did not go on as it should"
passed "went on with step $from; no step is missing"
for name in manuals dictionary; do
  [ $name = manuals ] && expected=$manuals || expected=$loss
  same "step 0 of the new run on the $name is eval of the export" \
    "$(numbers validation "$dir/continue" $name 0)" "$expected"
done
new=$(numbers validation "$dir/continue" manuals last)
old=$(numbers validation "$dir/continue" dictionary last)
printf 'loss on held-out text   before   after\n  manuals (new)        %7.4f %7.4f\n' \
  "$manuals" "$new"
printf '  dictionary (old)     %7.4f %7.4f\n' "$loss" "$old"
numbers below "$new" "$manuals" 0.1 || fail "the loss on the manuals did not fall by 0.1"
passed "the new text's loss fell"

title "6/7 Export and reload"
run "$longhaul" export "$dir/continue" --out "$dir/hf-continue" --dtype bf16
for name in manuals dictionary; do
  [ $name = manuals ] && expected=$new || expected=$old
  same "the export's loss on the $name is the run's last validation" \
    "$(loss_of "$dir/hf-continue" "$store/$name-val")" "$expected"
done

title "7/7 What it writes"
run "$longhaul" generate "$dir/hf-pretrain" --prompt "Engine " --max-new-tokens 60 \
  --temperature 0.7 --seed 1
run "$longhaul" generate "$dir/hf-continue" --prompt "=head1 " --max-new-tokens 60 \
  --temperature 0.7 --seed 1

cat <<END

demo: all checks passed in $((SECONDS / 60)) min $((SECONDS % 60)) s. What to type next:
  build/bin/longhaul generate $dir/hf-continue --prompt 'The function returns'
  build/bin/longhaul inspect $dir/continue       # the run: newest checkpoint, settings
  build/bin/longhaul config recipes/demo/continue.toml     # every setting of a run
  .venv/bin/tensorboard --logdir $dir            # the curves of both runs
  build/bin/longhaul data build YOUR_TEXT.jsonl --tokenizer YOUR_MODEL --out data/yours
END
