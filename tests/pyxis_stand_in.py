"""A stand-in for srun with pyxis and enroot: a step with --container-image sees a root of its own, which
has the system's programs and libraries, as an image has, and of the machine only what is mounted."""

import os
import subprocess

# This script takes the options of pyxis out, and hands the other options to the real srun where
# there is one.
SRUN = r"""#!/bin/bash
set -eu
others=() image= mounts= workdir=/ names=
while [ $# -gt 0 ]; do
  case $1 in
    --container-image=*) image=${1#*=} ;;
    --container-mounts=*) mounts=${1#*=} ;;
    --container-workdir=*) workdir=${1#*=} ;;
    --container-env=*) names=${1#*=} ;;
    --*) others+=("$1") ;;
    *) break ;;
  esac
  shift
done
step=("$@")
if [ -n "$image" ]; then
  printf '%s\n' "$image" "$mounts" "$workdir" > "$SEEN/container"
  step=(unshare -m bash "$SEEN/enter" "$mounts" "$workdir" "$names" "$@")
fi
exec ${REAL_SRUN:+"$REAL_SRUN" "${others[@]}"} "${step[@]}"
"""

# A new root, the mounts at their places, the image's variables, the working directory, then the command.
# The directory of PMIx comes along as by enroot's hook for it.
ENTER = r"""set -eu
mounts=$1 workdir=$2 names=$3 root=/mnt
shift 3
mount -t tmpfs tmpfs "$root"
for system in bin dev etc lib lib64 proc sbin sys usr; do
  [ -e "/$system" ] || continue
  mkdir -p "$root/$system"
  mount --rbind "/$system" "$root/$system"
done
mkdir -p "$root/tmp"
IFS=,
for pair in $mounts ${PMIX_SERVER_TMPDIR:+$PMIX_SERVER_TMPDIR:$PMIX_SERVER_TMPDIR}; do
  IFS=: read -r from to flags <<< "$pair"
  if [ -d "$from" ]; then mkdir -p "$root$to"; else mkdir -p "$root${to%/*}"; touch "$root$to"; fi
  mount --rbind "$from" "$root$to"
  [ "$flags" != ro ] || mount -o remount,bind,ro "$root$to"
done
while IFS='=' read -r name value; do
  case ",$names," in *",$name,"*) ;; *) export "$name=$value" ;; esac
done < "$SEEN/image_variables"
exec chroot "$root" /bin/bash -eu -c 'cd "$0"; exec "$@"' "$workdir" "$@"
"""


def may_mount():
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


def install(seen, real_srun="", **of_image):
    """Makes the stand-in in a directory; returns the variables that put it in srun's place. The image has
    variables of its own."""
    seen.mkdir()
    (seen / "srun").write_text(SRUN)
    (seen / "srun").chmod(0o755)
    (seen / "enter").write_text(ENTER)
    (seen / "image_variables").write_text("".join(f"{name}={value}\n"
                                                  for name, value in of_image.items()))
    return {"PATH": f"{seen}:{os.environ['PATH']}", "SEEN": str(seen), "REAL_SRUN": real_srun}


def seen_of(seen):
    """Returns (image, mounts, working directory) of the last step that ran in a container."""
    image, mounts, workdir = (seen / "container").read_text().splitlines()
    return image, mounts.split(","), workdir
