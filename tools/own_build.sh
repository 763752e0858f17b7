#!/bin/bash
# tools/own_build.sh BUILD_DIR: ends with 1 where the build directory was made for another
# checkout. A copied or moved directory would compile that checkout's files.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$1/CMakeCache.txt
[ -f "$cache" ] || exit 0
home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$cache")
[ "$home" -ef . ] && exit 0
echo "build: error: $1 was made for the checkout $home, and this one is $PWD;" \
  "run: rm -rf $1" >&2
exit 1
