#!/bin/bash
# Builds the image on a worker and imports it for pyxis, as a Slurm job, from the root of the
# source tree:
#
#   sbatch deploy/container/build_on_worker.sh /shared/images/longhaul.sqsh [longhaul-cuda|longhaul-neuron]
#
# longhaul-cuda is for GPUs and takes the wheel in dist, which `make cuda CUDA_TORCH=2.13.0` and
# `make wheel` make before. Needs podman or docker, and enroot, on the workers. Tried: shellcheck,
# and with stand-ins for podman and enroot (tests/house/deploy_test.py). Untried: on a cluster.
#SBATCH --job-name=longhaul-image
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --output=longhaul-image-%j.log
set -euo pipefail

target=${2:-longhaul}
if [ $# -lt 1 ] || [ $# -gt 2 ] || [ ! -f deploy/container/Containerfile ] ||
  [[ ! $target =~ ^longhaul(-cuda|-neuron)?$ ]]; then
  echo "usage, in the root of the source tree: build_on_worker.sh IMAGE.sqsh [longhaul|longhaul-cuda|longhaul-neuron]" >&2
  exit 2
fi
if [ "$target" = longhaul-cuda ]; then
  wheels=(dist/longhaul_train-*.whl)
  if [ ${#wheels[@]} != 1 ] || ! grep -aq longhaul_train/bin/liblonghaul_cuda.so "${wheels[0]}"; then
    echo "dist must hold one wheel, with the library for CUDA (make cuda CUDA_TORCH=2.13.0, then" \
      "make wheel); it holds: ${wheels[*]}" >&2
    exit 1
  fi
fi
builder=$(command -v podman || command -v docker) ||
  { echo "neither podman nor docker on $(hostname)" >&2; exit 1; }
# A tag of its own: two builds on one worker do not mix.
tag=longhaul:build-${SLURM_JOB_ID:-$$}
arguments=()
[ -z "${PIP_INDEX_URL:-}" ] || arguments+=(--build-arg "PIP_INDEX_URL=$PIP_INDEX_URL")
"$builder" build --target "$target" --tag "$tag" -f deploy/container/Containerfile \
  --build-arg "LONGHAUL_COMMIT=$(git describe --always --dirty 2>/dev/null || echo unknown)" \
  "${arguments[@]}" .
deploy/container/import_enroot.sh "$tag" "$1" "$(basename "$builder")"
"$builder" rmi "$tag" >/dev/null
