#!/bin/bash
# Builds the image on a worker and imports it for pyxis, as a Slurm job, from the root of the
# source tree:
#
#   sbatch deploy/container/build_on_worker.sh /shared/images/longhaul.sqsh
#
# Needs podman or docker, and enroot, on the workers. Tried: shellcheck. Untried: on a cluster.
#SBATCH --job-name=longhaul-image
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --output=longhaul-image-%j.log
set -euo pipefail

if [ $# != 1 ] || [ ! -f deploy/container/Containerfile ]; then
  echo "usage, in the root of the source tree: build_on_worker.sh IMAGE.sqsh" >&2
  exit 2
fi
builder=$(command -v podman || command -v docker) ||
  { echo "neither podman nor docker on $(hostname)" >&2; exit 1; }
# A tag of its own: two builds on one worker do not mix.
tag=longhaul:build-${SLURM_JOB_ID:-$$}
arguments=()
[ -z "${PIP_INDEX_URL:-}" ] || arguments+=(--build-arg "PIP_INDEX_URL=$PIP_INDEX_URL")
"$builder" build --target longhaul --tag "$tag" -f deploy/container/Containerfile \
  --build-arg "LONGHAUL_COMMIT=$(git describe --always --dirty 2>/dev/null || echo unknown)" \
  "${arguments[@]}" .
deploy/container/import_enroot.sh "$tag" "$1" "$(basename "$builder")"
"$builder" rmi "$tag" >/dev/null
