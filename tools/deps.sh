#!/bin/bash
# Installs what the build and the tests need: Debian packages (as root or through sudo)
# and the virtual environment .venv. Does nothing, quickly, when all of it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

# Two `make` at once must not install twice.
mkdir -p .cache
exec 9>.cache/deps.lock
flock 9

say() { echo "deps: $*"; }
fail() { echo "deps: error: $*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "root rights are needed for '$*'; run as root or install sudo"
  fi
}

debian_packages() {
  local wanted missing
  wanted=$(sed 's/#.*//' requirements-debian.txt)
  command -v dpkg-query >/dev/null ||
    fail "this is no Debian; install the counterparts of requirements-debian.txt by hand," \
         "then run tools/deps.sh --no-packages"
  # shellcheck disable=SC2086  # one word per package
  missing=$(comm -23 <(printf '%s\n' $wanted | sort) \
    <(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' $wanted 2>/dev/null |
      sed -n 's/^ii *//p' | sort -u))
  [ -z "$missing" ] && return
  say "installing Debian packages: ${missing//$'\n'/ }"
  as_root apt-get update -qq </dev/null
  # shellcheck disable=SC2086
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends $missing </dev/null
}

# Debian's own Python first: another one on PATH may lack venv or have another version.
find_python() {
  local candidate
  for candidate in /usr/bin/python3.11 python3.11 /usr/bin/python3 python3; do
    if "$candidate" -c 'import sys, venv, ensurepip
sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  fail "no Python 3.10 to 3.13 with venv found; install python3.11 and python3.11-venv"
}

virtual_environment() {
  local stamp=.venv/longhaul-stamp want
  # With the place: the commands of a virtual environment that was copied start the other one.
  want=$({ cat requirements.txt requirements-test.txt; pwd -P; } | sha256sum)
  [ -x .venv/bin/python3 ] && [ "$(cat $stamp 2>/dev/null)" = "$want" ] && return
  if ! grep -qsF "$(pwd -P)/.venv" .venv/bin/pip || ! .venv/bin/python3 -c 'import pip' 2>/dev/null; then
    say "making .venv"
    "$(find_python)" -m venv --clear .venv
  fi
  say "installing Python packages into .venv"
  # torch alone first: a package that asks for any torch would choose another build.
  local pip=(.venv/bin/python3 -m pip install --quiet --disable-pip-version-check)
  "${pip[@]}" "$(grep '^torch==' requirements.txt)"
  "${pip[@]}" -r requirements.txt
  "${pip[@]}" -r requirements.txt -r requirements-test.txt
  echo "$want" > $stamp
}

[ "${1:-}" = --no-packages ] || debian_packages
virtual_environment
