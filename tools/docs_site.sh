#!/bin/bash
# Makes the site of the documentation in a folder, by docs_site.py. Installs what it needs
# into .venv-docs.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=.venv-docs/longhaul-stamp
want=$({ cat requirements-docs.txt; pwd -P; } | sha256sum)
if [ "$(cat $stamp 2>/dev/null)" != "$want" ]; then
  .venv/bin/python3 -m venv --clear .venv-docs
  .venv-docs/bin/pip install -q --disable-pip-version-check -r requirements-docs.txt
  echo "$want" > $stamp
fi
exec .venv-docs/bin/python3 tools/docs_site.py "$1"
