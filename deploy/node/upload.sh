#!/bin/bash
# Uploads an installed tree of longhaul and the scripts that nodes run, and prints the value of
# TREE for the parameters:
#
#   upload.sh TREE s3://BUCKET/PREFIX
#
# TREE is what `make install PREFIX=TREE` made. The archive is named by its own hash: what a
# node unpacks is what was uploaded, and two versions live side by side. Needs `aws` with rights
# to write there.
#
# Tried: with a stand-in for `aws` (tests/house/deploy_test.py). Untried: against S3.
set -euo pipefail

[ $# = 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
tree=$1
target=${2%/}
here=$(cd "$(dirname "$0")" && pwd)

[[ $target =~ ^s3://[a-z0-9.-]+/.+ ]] || { echo "upload: '$target' is no s3://BUCKET/PREFIX" >&2; exit 2; }
[ -x "$tree/bin/longhaul" ] || { echo "upload: no $tree/bin/longhaul" >&2; exit 1; }
"$tree/bin/longhaul" --version >/dev/null || { echo "upload: $tree does not run" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The same tree gives the same archive, so the same name.
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$tree" -cf - . |
  gzip -n >"$work/archive"
hash=$(sha256sum "$work/archive" | cut -d' ' -f1)
aws s3 cp --only-show-errors "$work/archive" "$target/longhaul-$hash.tar.gz"
for script in "$here/prepare_node.sh" "$here/../hyperpod/on_create.sh"; do
  aws s3 cp --only-show-errors "$script" "$target/${script##*/}"
done
# HyperPod's script gets no arguments; it reads from this file where the tree lies.
echo "$target/longhaul-$hash.tar.gz" >"$work/source.txt"
aws s3 cp --only-show-errors "$work/source.txt" "$target/source.txt"
echo "TREE = longhaul-$hash.tar.gz"
