#!/bin/bash
# Installs what the build and the tests need: Debian packages (as root or through sudo), the
# virtual environment .venv, and the template engine in .cache/jinja. Does nothing, quickly, when
# all of it is there. --llama-cpp DIR unpacks the source of llama.cpp there and does nothing else.
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
  want=$({ cat requirements.txt requirements-test.txt requirements-files.txt; pwd -P; } | sha256sum)
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
  "${pip[@]}" --no-deps -r requirements-files.txt
  echo "$want" > $stamp
}

# PyPI's source package of llama-cpp-python carries llama.cpp (MIT), which no Debian package holds.
# pip fetches it from the registry that the user has configured, pinned by hash.
llama_cpp_version=0.3.36
llama_cpp_hash=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

# llama_cpp SCRATCH PATTERNS...: unpacks files of llama.cpp. They then lie in $llama_cpp_source.
llama_cpp() {
  local scratch=$1 package=llama_cpp_python-$llama_cpp_version
  # pip asks a source package's build backend for the name of what it fetches. The real backend
  # runs CMake for that, which takes five minutes. This one knows the name.
  mkdir -p "$scratch/backend/scikit_build_core"
  touch "$scratch/backend/scikit_build_core/__init__.py"
  cat > "$scratch/backend/scikit_build_core/build.py" <<EOF
import pathlib


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    name = "$package.dist-info"
    folder = pathlib.Path(directory, name)
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\\nName: llama_cpp_python\\nVersion: $llama_cpp_version\\n")
    return name
EOF
  echo "llama-cpp-python==$llama_cpp_version --hash=sha256:$llama_cpp_hash" > "$scratch/requirements.txt"
  PYTHONPATH="$PWD/$scratch/backend" .venv/bin/python3 -m pip download --quiet \
    --disable-pip-version-check --no-deps --no-build-isolation --no-binary :all: \
    --require-hashes -r "$scratch/requirements.txt" -d "$scratch" ||
    fail "llama-cpp-python $llama_cpp_version could not be fetched; run tools/deps.sh again"
  tar -xzf "$scratch/$package.tar.gz" -C "$scratch" --wildcards "${@:2}"
  llama_cpp_source="$scratch/$package/vendor/llama.cpp"
}

# The template engine is some files of llama.cpp, and longhaul-serve needs the cpp-httplib (MIT) beside
# them, which is newer than Debian's. Only these and the licences are kept.
# cmake/LonghaulJinja.cmake applies tools/jinja.patch.
template_engine() {
  local dir=.cache/jinja scratch stamp
  # The stamp tells of the package and of what this function takes out of it.
  stamp="$llama_cpp_hash $(declare -f template_engine | sha256sum | cut -d' ' -f1)"
  [ "$(cat $dir/stamp 2>/dev/null)" = "$stamp" ] && return
  say "fetching the template engine"
  scratch=$(mktemp -d -p .cache jinja.XXXXXX)
  # shellcheck disable=SC2064  # the directory's name of now
  trap "rm -rf '$PWD/$scratch'" EXIT
  llama_cpp "$scratch" '*/vendor/llama.cpp/LICENSE' '*/vendor/llama.cpp/common/unicode.*' \
    '*/vendor/llama.cpp/common/jinja/*' '*/vendor/llama.cpp/models/templates/*.jinja' \
    '*/vendor/llama.cpp/vendor/cpp-httplib/*'
  rm -rf $dir
  mkdir -p $dir/jinja $dir/templates $dir/cpp-httplib
  cp "$llama_cpp_source"/models/templates/*.jinja $dir/templates  # for tests/chat
  cp "$llama_cpp_source"/LICENSE "$llama_cpp_source"/common/unicode.{h,cpp} $dir
  cp "$llama_cpp_source"/common/jinja/{lexer,parser,runtime,string,value}.{h,cpp} \
    "$llama_cpp_source"/common/jinja/utils.h $dir/jinja
  cp "$llama_cpp_source"/vendor/cpp-httplib/{LICENSE,httplib.h,httplib.cpp} $dir/cpp-httplib
  echo "$stamp" > $dir/stamp
  rm -rf "$scratch"
}

# All of llama.cpp, for `make soak`.
whole_llama_cpp() {
  local dir=$1 scratch
  [ "$(cat "$dir/stamp" 2>/dev/null)" = $llama_cpp_hash ] && return
  [ ! -e "$dir" ] || [ -f "$dir/stamp" ] || fail "$dir is there already and not of this script"
  say "fetching llama.cpp"
  scratch=$(mktemp -d -p .cache llama.XXXXXX)
  # shellcheck disable=SC2064  # the directory's name of now
  trap "rm -rf '$PWD/$scratch'" EXIT
  llama_cpp "$scratch" '*/vendor/llama.cpp/*'
  rm -rf "$dir"
  mv "$llama_cpp_source" "$dir"
  echo $llama_cpp_hash > "$dir/stamp"
}

if [ "${1:-}" = --llama-cpp ]; then
  whole_llama_cpp "$2"
  exit
fi
[ "${1:-}" = --no-packages ] || debian_packages
virtual_environment
template_engine
