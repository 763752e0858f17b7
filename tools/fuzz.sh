#!/bin/bash
# tools/fuzz.sh [SECONDS]: builds every libFuzzer target and runs each for that long (10 s).
# What it finds stays in build-fuzz/findings/NAME/; the corpus grows in build-fuzz/corpus/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
[ -f build-fuzz/build.ninja ] || cmake --preset fuzz
cmake --build build-fuzz -j "${JOBS:-$(nproc)}" --target fuzz_targets
failed=0 passed=0
for program in build-fuzz/fuzz/fuzz_*; do
  name=$(basename "$program")
  mkdir -p "build-fuzz/corpus/$name" "build-fuzz/findings/$name"
  seeds=()
  [ -d "tests/fuzz/seeds/${name#fuzz_}" ] && seeds=("tests/fuzz/seeds/${name#fuzz_}")
  # Memory and time limits are part of the claim: a hostile file costs neither.
  if "$program" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="build-fuzz/findings/$name/" \
    "build-fuzz/corpus/$name" "${seeds[@]}" >"build-fuzz/$name.log" 2>&1; then
    echo "fuzz: $name ok, $(sed -n 's/.*number_of_executed_units: *//p' "build-fuzz/$name.log") inputs"
    passed=$((passed + 1))
  else
    tail -n 40 "build-fuzz/$name.log"
    echo "fuzz: $name FAILED, see build-fuzz/findings/$name/"
    failed=$((failed + 1))
  fi
done
echo "fuzz: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
