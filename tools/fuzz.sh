#!/bin/bash
# tools/fuzz.sh [SECONDS]: builds every libFuzzer target and runs each for that long (10 s),
# as many at a time as there are cores. What it finds stays in build-asan-ubsan/findings/NAME/;
# the corpus grows in build-asan-ubsan/corpus/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
build="build-asan-ubsan"
jobs=${JOBS:-$(nproc)}
[ -f "$build/build.ninja" ] || cmake --preset asan-ubsan
cmake --build "$build" -j "$jobs" --target fuzz_targets

# fuzz NAME: runs one target; its output is in $build/NAME.log.
fuzz() {
  local name=$1 seeds=()
  mkdir -p "$build/corpus/$name" "$build/findings/$name"
  [ -d "tests/fuzz/seeds/${name#fuzz_}" ] && seeds=("tests/fuzz/seeds/${name#fuzz_}")
  # Memory and time limits are part of the claim: a hostile file costs neither.
  "$build/fuzz/$name" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 \
    -max_len=65536 -print_final_stats=1 -artifact_prefix="$build/findings/$name/" \
    "$build/corpus/$name" "${seeds[@]}" >"$build/$name.log" 2>&1
}

failed=0 passed=0 names=()
for program in "$build"/fuzz/fuzz_*; do names+=("$(basename "$program")"); done
for ((first = 0; first < ${#names[@]}; first += jobs)); do
  together=("${names[@]:first:jobs}") pids=()
  for name in "${together[@]}"; do fuzz "$name" & pids+=($!); done
  for i in "${!together[@]}"; do
    name=${together[i]}
    if wait "${pids[i]}"; then
      echo "fuzz: $name ok, $(sed -n 's/.*number_of_executed_units: *//p' "$build/$name.log") inputs"
      passed=$((passed + 1))
    else
      tail -n 40 "$build/$name.log"
      echo "fuzz: $name FAILED, see $build/findings/$name/"
      failed=$((failed + 1))
    fi
  done
done
echo "fuzz: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
