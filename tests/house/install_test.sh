#!/bin/bash
# The installed tree runs from any place with an empty environment, and nothing in it looks
# for a library in the source tree, in the virtual environment or beside Python.
set -euo pipefail
build=$1 source=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$build" --prefix "$scratch/first" >"$scratch/log" || { cat "$scratch/log"; exit 1; }
mv "$scratch/first" "$scratch/moved"
tree=$scratch/moved

env -i "$tree/bin/longhaul" --version
env -i "$tree/bin/longhaul" --help >/dev/null

resolved=$(for program in "$tree"/bin/*; do env -i ldd "$program"; done)
if grep -E "not found|$source|\.venv|python|site-packages" <<<"$resolved"; then
  echo "a library is missing or comes from the source tree"
  exit 1
fi
for library in libtorch_cpu.so libc10.so libfmt.so; do
  grep -q "$library.* => $tree/lib/" <<<"$(sed "s#$tree/bin/../lib#$tree/lib#" <<<"$resolved")" ||
    { echo "$library does not come from the installed tree"; exit 1; }
done

# What is searched, and by which rules: of the programs, and of the libraries that came along.
python3 "$source/tests/house/check_elf.py" --guarded "$tree/bin" --theirs "$tree/lib"
while read -r file; do
  run_path=$(patchelf --print-rpath "$file")
  case $run_path in
    '$ORIGIN' | '$ORIGIN/../lib') ;;
    *) echo "$file searches '$run_path'"; exit 1 ;;
  esac
done < <(find "$tree/bin" "$tree/lib" -type f)

# A directory with files that are named like libraries is no danger to whoever works in it.
mkdir "$scratch/planted"
grep -o '^[[:space:]]*lib[^ ]*' <<<"$resolved" | while read -r name; do
  echo "no library" >"$scratch/planted/$name"
done
test -f "$scratch/planted/libzstd.so.1"
for program in longhaul longhaul-torch; do
  (cd "$scratch/planted" && env -i "$tree/bin/$program" --version >/dev/null)
done
# The process for objects, which longhaul starts, finds its libraries too: alone it refuses.
status=0
(cd "$scratch/planted" && env -i "$tree/bin/longhaul-objects" 2>"$scratch/said") || status=$?
[ "$status" = 64 ] && grep -q "longhaul starts this program" "$scratch/said" ||
  { echo "longhaul-objects ends with $status: $(cat "$scratch/said")"; exit 1; }
test -f "$tree/share/longhaul/recipes/llama2-7b.toml"
# Pages and recipes are those of the tree, wherever the command is typed.
(cd "$scratch" && env -i "$tree/bin/longhaul" docs data | grep -c '^# Data$' >/dev/null)
(cd "$scratch" && env -i "$tree/bin/longhaul" recipe show llama2-7b |
  grep -c "^config = \"$tree/share/longhaul/recipes/models/llama2-7b\"$" >/dev/null)
test -f "$tree/share/longhaul/recipes/models/llama2-7b/config.json"
test -f "$tree/share/longhaul/hardware/p5.48xlarge.toml"

# Every library that came along has a licence, and so has what is compiled in.
test -s "$tree/share/longhaul/LICENSE"
test -s "$tree/share/longhaul/NOTICE"
for name in zlib1g liblzma5 libbz2-1.0 libhdf5-dev libsodium-dev libcmark-gfm-dev libyaml-dev libcli11-dev \
  libtomlplusplus-dev nlohmann-json3-dev llama.cpp torch/LICENSE pyarrow/LICENSE.txt; do
  test -s "$tree/share/longhaul/licenses/$name" || { echo "no licence of $name"; exit 1; }
done

# The same with the source tree and every Python out of sight, where we may hide them.
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
  unshare -m bash -c '
    mkdir '"$scratch"'/empty
    mount --bind '"$scratch"'/empty "$1"
    env -i '"$tree"'/bin/longhaul --version >/dev/null' hidden "$source"
  echo "runs with the source tree hidden"
fi
