#!/bin/bash
# Prints the path of the program that `make demo` runs: that of a wheel in dist that was made
# of this checkout's commit, installed into .cache/demo-env without a compiler; else the one
# that is built here. What happens meanwhile goes to the error stream.
set -euo pipefail
cd "$(dirname "$0")/.."
exec 3>&1 1>&2

built_here() {
  make --no-print-directory program
  echo build/bin/longhaul >&3
  exit 0
}

wheel=$(compgen -G 'dist/longhaul_train-*.whl' | head -n 1) || built_here
of=$(python3 - "$wheel" <<'END'
import sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
print(archive.read(next(n for n in archive.namelist() if n.endswith("/commit"))).decode())
END
)
if [ "$of" != "$(git rev-parse --short=12 HEAD)" ]; then
  echo "demo: $wheel is of commit $of, not of this checkout's: built here instead"
  built_here
fi
environment=.cache/demo-env
rm -rf "$environment"
python3 -m venv "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check "$wheel"
echo "demo: with $wheel"
echo "$environment/bin/longhaul" >&3
