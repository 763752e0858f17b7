#include "longhaul/train/log/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace longhaul::train {
namespace {

constexpr size_t kLongestLogged = 1000;

constexpr std::array<std::string_view, 9> kLoggedNames = {
    "CONDA_PREFIX", "CUBLAS_WORKSPACE_CONFIG", "GLIBC_TUNABLES", "LD_LIBRARY_PATH",
    "LD_PRELOAD",   "NVIDIA_TF32_OVERRIDE",    "TMPDIR",         "VIRTUAL_ENV",
    "WORLD_SIZE"};

/// Prefixes of names: all variables with one of these prefixes are logged. Open MPI's
/// settings are listed by component, since its other settings hold addresses and keys.
constexpr std::array<std::string_view, 29> kLoggedFamilies = {
    "AOTI_",        "ATEN_",         "CCOM_",         "CUDA_",        "EFA_",
    "FI_",          "GOMP_",         "KMP_",          "LONGHAUL_",    "MALLOC_",
    "MKL_",         "NCCL_",         "NEURON_",       "OFI_",         "OMPI_COMM_WORLD_",
    "OMPI_MCA_btl", "OMPI_MCA_coll", "OMPI_MCA_mpi_", "OMPI_MCA_mtl", "OMPI_MCA_osc",
    "OMPI_MCA_pml", "OMP_",          "ONEDNN_",       "PYTORCH_",     "RDMAV_",
    "SLURM_",       "TORCH_",        "UCX_",          "XLA_"};

constexpr std::array<std::string_view, 9> kSecretWords = {
    "AUTH", "CRED", "JWT", "KEY", "MUNGE", "PASS", "SECRET", "SIGNATURE", "TOKEN"};

}  // namespace

bool is_logged_variable(std::string_view name) {
  const auto secret = [&](std::string_view word) {
    return name.find(word) != std::string_view::npos;
  };
  if (std::ranges::any_of(kSecretWords, secret)) return false;
  const auto begins = [&](std::string_view family) { return name.starts_with(family); };
  return std::ranges::find(kLoggedNames, name) != kLoggedNames.end() ||
         std::ranges::any_of(kLoggedFamilies, begins);
}

std::vector<std::pair<std::string, std::string>> logged_environment() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    const std::string_view variable = *one;
    const size_t equals = variable.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = variable.substr(0, equals);
    if (!is_logged_variable(name)) continue;
    std::string value(variable.substr(equals + 1, kLongestLogged));
    for (char& c : value) {
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    }
    found.emplace_back(name, std::move(value));
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace longhaul::train
