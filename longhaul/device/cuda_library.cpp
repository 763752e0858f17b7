#include "longhaul/device/cuda_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "longhaul/base/process.h"

namespace longhaul::device {
namespace {

constexpr const char* kFile = "liblonghaul_cuda.so";

}  // namespace

fs::path library_path(const char* file) {
  const fs::path folder = fs::path(this_program()).parent_path();
  for (const fs::path& path : {folder / file, folder.parent_path() / "lib" / file}) {
    if (fs::exists(path)) return path;
  }
  return {};
}

CudaLibrary open_cuda_library(const fs::path& path) {
  if (path.empty()) {
    return {nullptr, fmt::format("there is no {} beside the program", kFile)};
  }
  // With an absolute path dlopen() does not search the library in other folders.
  void* handle = ::dlopen(fs::absolute(path).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    return {nullptr, fmt::format("{} cannot be loaded ({}); it needs the CUDA build of "
                                 "this program's LibTorch version (longhaul --version)",
                                 path.string(), ::dlerror())};
  }
  void* const symbol = ::dlsym(handle, kCudaKind);
  if (symbol == nullptr) {
    return {nullptr,
            fmt::format(
                "{} lacks the function {}: the library is of another version of longhaul",
                path.string(), kCudaKind)};
  }
  return {reinterpret_cast<CudaKind*>(symbol)(), {}};
}

const CudaLibrary& cuda_library() {
  static const CudaLibrary library = open_cuda_library(library_path(kFile));
  return library;
}

}  // namespace longhaul::device
