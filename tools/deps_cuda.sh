#!/bin/bash
# Fetches what the CUDA build needs into .cache/cuda: a CUDA LibTorch (the wheel's include/
# and lib/, 530 MB), NCCL's header (out of 190 MB), the disassembler that
# tools/cuda_resources.py reads kernels with (4 MB) and, where the machine has no nvcc, the
# CUDA compiler's own wheels.
# Needs no GPU. CUDA_TORCH: LibTorch's version (2.11.0); TORCH_CUDA_WHEEL names a wheel of it
# that is here already.
set -euo pipefail
cd "$(dirname "$0")/.."
torch_version=${CUDA_TORCH:-2.11.0} cuda_version=13.0 nccl_version=2.28.9
nvdisasm_version=13.2.86
cache=.cache/cuda
mkdir -p "$cache/wheels"
exec 9>"$cache/lock"
flock 9

download() {
  .venv/bin/python3 -m pip download --quiet --no-deps --disable-pip-version-check \
    --dest "$cache/wheels" "$@"
}
unpack() { .venv/bin/python3 -m zipfile -e "$1" "$2"; }

libtorch=$cache/torch-$torch_version
if [ ! -f "$libtorch/.complete" ]; then
  wheel=${TORCH_CUDA_WHEEL:-}
  if [ -z "$wheel" ]; then
    echo "deps: fetching LibTorch $torch_version with CUDA"
    download "torch==$torch_version"
    wheel=$(ls "$cache/wheels/torch-$torch_version"-*.whl)
  fi
  rm -rf "$libtorch"
  unpack "$wheel" "$libtorch"
  [ -f "$libtorch/torch/lib/libtorch_cuda.so" ] ||
    { echo "deps: error: $wheel holds no CUDA LibTorch; name one in TORCH_CUDA_WHEEL" >&2
      exit 1; }
  touch "$libtorch/.complete"
  rm -f "$cache/wheels/torch-$torch_version"-*.whl
fi

# NCCL's header; the library comes with LibTorch.
nccl=$cache/nccl
if [ ! -f "$nccl/.complete" ]; then
  echo "deps: fetching NCCL's header"
  download "nvidia-nccl-cu13==$nccl_version"
  rm -rf "$nccl" "$nccl.new"
  unpack "$(ls "$cache/wheels/nvidia_nccl_cu13-$nccl_version"-*.whl)" "$nccl.new"
  mkdir -p "$nccl"
  mv "$nccl.new/nvidia/nccl/include" "$nccl/include"
  rm -rf "$nccl.new" "$cache/wheels/nvidia_nccl_cu13-$nccl_version"-*.whl
  touch "$nccl/.complete"
fi

# The disassembler: it has no wheel of 13.0, and reads what that compiler writes. On every
# machine, so that all count with the same one.
nvdisasm=$cache/nvdisasm-$nvdisasm_version
if [ ! -f "$nvdisasm/.complete" ]; then
  echo "deps: fetching CUDA's disassembler"
  download "nvidia-cuda-nvdisasm==$nvdisasm_version"
  rm -rf "$nvdisasm" "$nvdisasm.new"
  unpack "$(ls "$cache/wheels/nvidia_cuda_nvdisasm-$nvdisasm_version"-*.whl)" "$nvdisasm.new"
  chmod +x "$nvdisasm.new/nvidia/cu13/bin/nvdisasm"
  mkdir -p "$nvdisasm"
  mv "$nvdisasm.new/nvidia/cu13/bin" "$nvdisasm/bin"
  rm -rf "$nvdisasm.new" "$cache/wheels/nvidia_cuda_nvdisasm-$nvdisasm_version"-*.whl
  touch "$nvdisasm/.complete"
fi

toolkit=$cache/toolkit-$cuda_version
if ! command -v nvcc >/dev/null && [ ! -f "$toolkit/.complete" ]; then
  echo "deps: no nvcc here; fetching the CUDA $cuda_version compiler"
  rm -rf "$toolkit" "$toolkit.new"
  mkdir -p "$toolkit"
  for package in nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime \
    nvidia-cuda-cccl; do
    download "$package==$cuda_version.*"
    unpack "$(ls "$cache/wheels/${package//-/_}"-*.whl)" "$toolkit.new"
  done
  # Each wheel carries a part of one tree, nvidia/cu13/{bin,include,lib,nvvm}.
  mv "$toolkit.new"/nvidia/cu13/* "$toolkit/"
  rm -rf "$toolkit.new" "$cache"/wheels/nvidia_*.whl
  [ -e "$toolkit/lib64" ] || ln -s lib "$toolkit/lib64"
  find "$toolkit" -type f \( -path '*/bin/*' -o -name cicc \) -exec chmod +x {} +
  touch "$toolkit/.complete"
fi
