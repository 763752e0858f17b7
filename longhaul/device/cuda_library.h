#pragma once

#include <string>

#include "longhaul/base/file.h"
#include "longhaul/device/kinds.h"

namespace longhaul::device {

// The program itself knows no CUDA. Its kernels and collectives for it are a library of
// their own, which needs the CUDA form of LibTorch: one program serves both forms.

/// The library, or why there is none.
struct CudaLibrary {
  const Kind* kind = nullptr;
  std::string obstacle;  ///< empty where `kind` is there
};

/// Where the library lies: beside the program, or in the folder lib beside the program's;
/// empty where it is in neither.
fs::path cuda_library_path();

/// Loads the library, and CUDA into LibTorch by it, at the first call: to be made before
/// LibTorch is asked for devices, whose answer stays. Thread-safe.
const CudaLibrary& cuda_library();

/// Opens the library of `path`; what cuda_library() does once with the program's.
CudaLibrary open_cuda_library(const fs::path& path);

/// The C function by which the library gives its Kind, of the type CudaKind.
constexpr const char* kCudaKind = "longhaul_cuda_kind";
using CudaKind = const Kind*();

}  // namespace longhaul::device
