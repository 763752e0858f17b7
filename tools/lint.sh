#!/bin/bash
# Formatting of every file, the house rules, clang-tidy on what changed, the scripts, and the
# cluster files of deploy/.
# LINT_BASE names the commit to compare with (default: where this branch left main, or the
# commit before); LINT_ALL=1 runs clang-tidy on every file.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
failures=0

stage() {
  local name=$1 start=$SECONDS
  shift
  if "$@"; then
    printf 'lint: %-12s ok (%d s)\n' "$name" $((SECONDS - start))
  else
    printf 'lint: %-12s FAILED\n' "$name"
    failures=$((failures + 1))
  fi
}

sources() { git ls-files -co --exclude-standard -- "$@" | while read -r f; do
  [ -f "$f" ] && echo "$f"
done; }

format() { sources '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format-19 --dry-run --Werror; }

house() {
  local rule
  for rule in tests/house/check_{includes,words,sizes,comments,messages}.py; do
    .venv/bin/python3 "$rule" || return 1
  done
}

changed_units() {
  local base=${LINT_BASE:-}
  if [ -z "$base" ]; then
    base=$(git merge-base HEAD origin/main 2>/dev/null || true)
    [ -n "$base" ] && [ "$base" != "$(git rev-parse HEAD)" ] ||
      base=$(git rev-parse --verify -q HEAD~1 || echo HEAD)
  fi
  if [ -n "${LINT_ALL:-}" ]; then
    sources '*.cpp'
  else
    { git diff --name-only --diff-filter=d "$base" -- '*.cpp'
      git ls-files -o --exclude-standard -- '*.cpp'; } | sort -u
  fi
}

# Only units of this build have a compile command. What only GCC understands (its
# precompiled header, some warnings) is taken out for clang.
tidy() {
  local database=build/tidy/compile_commands.json units
  mkdir -p build/tidy
  tools/each_unit.sh || return 1
  sed -E 's# -include [^ ]*cmake_pch\.hxx##g; s# -fpch-preprocess##g; s# -Winvalid-pch##g;
          s# -Wno-(restrict|stringop-overflow|array-bounds|maybe-uninitialized|dangling-reference)##g
          s# -mno-avx256-split-unaligned-(load|store)##g' \
    build/each/compile_commands.json > $database
  units=$(changed_units | while read -r f; do
    grep -qF "\"file\": \"$PWD/$f\"" $database && echo "$f"
  done)
  [ -z "$units" ] && { echo "lint: no changed C++ unit"; return; }
  echo "$units" | xargs -P "$(nproc)" -n 2 clang-tidy-19 -p build/tidy --quiet \
    --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-error \
    --extra-arg=-isystem --extra-arg="$PWD/tools/lint" 2> build/tidy/stderr ||
    { grep -E 'error' build/tidy/stderr | head -20; return 1; }
}

# Left out are the scripts in the shape of other systems': their mistakes are the test.
scripts() {
  { sources '*.sh' ':!tests/fixtures/other_systems'; echo .ci/run; } |
    xargs shellcheck --severity=warning
}

# Every file has a licence, and the public workflow is one that its readers accept.
public() {
  .venv/bin/reuse lint --quiet || { .venv/bin/reuse lint --lines; return 1; }
  .venv/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows \
    .github/workflows/*.yml
}

stage format format
stage house house
stage scripts scripts
stage public public
[ -n "${LINT_FAST:-}" ] || stage deploy tools/check_deploy.sh
[ -n "${LINT_FAST:-}" ] || stage clang-tidy tidy
[ "$failures" = 0 ] && echo "lint: all good"
exit "$((failures > 0))"
