#!/bin/bash
# The files of deploy/ against the schemas and linters of those who read them. The packages
# (requirements-deploy.txt, 50 MB to fetch) go to .cache/deploy, once.
set -euo pipefail
cd "$(dirname "$0")/.."
home=.cache/deploy
want=$(sha256sum <requirements-deploy.txt)
if [ "$(cat $home/stamp 2>/dev/null)" != "$want" ]; then
  rm -rf $home
  mkdir -p .cache
  .venv/bin/python3 -m venv $home
  $home/bin/python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-deps \
    -r requirements-deploy.txt
  echo "$want" >$home/stamp
fi
exec $home/bin/python3 tests/house/check_deploy.py
