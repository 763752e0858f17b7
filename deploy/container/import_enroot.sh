#!/bin/bash
# Makes a squashfs file for enroot and pyxis out of an image that podman or docker holds:
#
#   import_enroot.sh longhaul:latest /shared/images/longhaul.sqsh [podman|docker]
#
# The file appears in one step: a job that starts meanwhile sees the old one or the new one.
# Tried: shellcheck, and with a stand-in for enroot (tests/house/deploy_test.py). Untried: enroot.
set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
image=$1 target=$2 builder=${3:-docker}
case $builder in
  docker) uri=dockerd://$image ;;
  podman) uri=podman://localhost/$image ;;
  *) echo "import_enroot: '$builder' is neither podman nor docker" >&2; exit 2 ;;
esac
command -v enroot >/dev/null || { echo "import_enroot: no enroot on this machine" >&2; exit 1; }
mkdir -p "$(dirname "$target")"
part=$target.part.$$
trap 'rm -f "$part"' EXIT
enroot import --output "$part" "$uri"
[ -s "$part" ] || { echo "import_enroot: enroot wrote nothing" >&2; exit 1; }
mv "$part" "$target"
echo "$target ($(stat -c %s "$target") bytes)"
