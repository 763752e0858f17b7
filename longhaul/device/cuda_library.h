#pragma once

#include <string>

#include "longhaul/base/file.h"
#include "longhaul/device/kinds.h"

namespace longhaul::device {

// The program itself is free of CUDA. Its kernels and collectives for CUDA are a library
// of their own, which needs the CUDA form of LibTorch, so that one program serves both
// forms of LibTorch.

/// The library's Kind, or the reason why there is no library.
struct CudaLibrary {
  const Kind* kind = nullptr;
  std::string obstacle;  ///< why there is no library; empty where there is one
};

/// Returns the path of a library of this project: beside the program, or in the folder
/// lib beside the program's folder. Returns an empty path if the file is in neither
/// place.
fs::path library_path(const char* file);

/// Loads the library at the first call, which also loads CUDA into LibTorch. The first
/// call must come before LibTorch is asked for devices, because LibTorch keeps its first
/// answer. Thread-safe.
const CudaLibrary& cuda_library();

/// Opens the library at `path`. cuda_library() does this once with the program's library.
CudaLibrary open_cuda_library(const fs::path& path);

/// The name of the C function that returns the library's Kind; its type is CudaKind.
constexpr const char* kCudaKind = "longhaul_cuda_kind";
using CudaKind = const Kind*();

}  // namespace longhaul::device
