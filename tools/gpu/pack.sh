#!/bin/bash
# tools/gpu/pack.sh [BUILD [OUT]]: the program, its tests for a GPU and the small libraries
# that a machine with a GPU may lack, stripped, with the calls of this folder: gpu-bundle, and
# gpu-bundle.tar.gz of less than 64 MB. What LibTorch, the nvidia packages and any machine's
# compiler bring stays out.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath "${1:-$root/build-cuda}")
out=${2:-$root/gpu-bundle}
most=$((64 * 1000 * 1000))
[ -x "$build/bin/longhaul" ] || { echo "pack: no program in $build; make cuda" >&2; exit 1; }
if [ -e "$out" ] && [ ! -e "$out/.longhaul-gpu-bundle" ]; then
  echo "pack: $out is there and is no bundle" >&2
  exit 1
fi
rm -rf "$out"
mkdir -p "$out/bin" "$out/lib" "$out/tools" "$out/tests"
touch "$out/.longhaul-gpu-bundle"
cp -r "$root/tools/gpu" "$out/tools/gpu"
cp "$root/tests/families.json" "$out/tests/"
rm -rf "$out"/tools/gpu/__pycache__
programs=("$build"/bin/longhaul "$build"/bin/longhaul-torch)
for more in longhaul/ops/ops_gpu_test longhaul/cuda/nccl_test bin/liblonghaul_cuda.so; do
  [ ! -x "$build/$more" ] || programs+=("$build/$more")
done
for program in "${programs[@]}"; do
  [ -x "$program" ] || continue
  strip -o "$out/bin/$(basename "$program")" "$program"
done
# Of the libraries those that neither glibc nor the Python packages bring.
for program in "$out"/bin/*; do ldd "$program" || true; done |
  awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libresolv|libutil|libstdc\+\+|libgcc_s|libgomp)\.so' |
  grep -vE '/torch/lib/|/nvidia/|lib(torch|c10|cudart|cupti|cublas|cudnn|nccl|cuda|longhaul_cuda)[^/]*\.so' |
  while read -r library; do
    strip -o "$out/lib/$(basename "$library")" "$library" ||
      cp -L "$library" "$out/lib/$(basename "$library")"
  done
tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")"
bytes=$(stat -c %s "$out.tar.gz")
echo "pack: $out.tar.gz, $((bytes / 1000000)) MB, ${#programs[@]} programs"
[ "$bytes" -le "$most" ] || { echo "pack: more than the 64 MB that can be carried" >&2; exit 1; }
