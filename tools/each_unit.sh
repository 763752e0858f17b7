#!/bin/bash
# build/each/compile_commands.json: a compile command for every file by itself. The build
# joins files of a target, which tools that look at one file cannot use. Compiles nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset cpu-release -B build/each -DLONGHAUL_JOIN=OFF >/dev/null
cmake --build build/each --target longhaul_commit >/dev/null
