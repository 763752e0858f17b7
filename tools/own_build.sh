#!/bin/bash
# tools/own_build.sh [BUILD_DIR...]: ends with 1 where a build directory (without a name, any
# that is here) was made for another checkout. A copied or moved one would compile that
# checkout's files.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- build build-*
for build; do
  cache=$build/CMakeCache.txt
  [ -f "$cache" ] || continue
  home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$cache")
  [ "$home" -ef . ] && continue
  echo "build: error: $build was made for the checkout $home, and this one is $PWD;" \
    "run: rm -rf $build" >&2
  exit 1
done
