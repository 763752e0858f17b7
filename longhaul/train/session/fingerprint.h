#pragma once

#include <string>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul::train {

/// What is known of a run's place that the machine itself does not tell.
struct NumericsPlace {
  std::string layout;
  std::string device;       ///< "cpu", or the GPU's name and architecture
  std::string collectives;  ///< whose sums over ranks, and in which order
  std::string products;     ///< whose, of the compute dtype
  std::string attention;    ///< whose
};

/// What decides the last bits of a result besides the program and the configuration, as
/// this rank sees it: CPU, instruction sets (ATen's and our kernels'), what limits the
/// libraries', threads, LibTorch, and the place. Equal fingerprints, equal bits.
Json numerics_fingerprint(const NumericsPlace& place);

/// One of all ranks': where they differ, the list of the values that there are.
Json merge_fingerprints(const std::vector<Json>& of_ranks);

/// How a checkpoint's fingerprint compares with that of now.
struct FingerprintComparison {
  /// "threads was 2, is 1; ...": the bits will differ. Empty: nothing is known to.
  std::string differences;
  /// "kernels, device": what the checkpoint does not say, since an older version (or an
  /// import) wrote it. Empty: it says all.
  std::string unknown;
};
FingerprintComparison compare_fingerprints(const Json& saved, const Json& now);

}  // namespace longhaul::train
