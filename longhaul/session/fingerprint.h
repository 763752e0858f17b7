#pragma once

#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/session/settle.h"

namespace longhaul::session {

/// Returns what decides the last bits of a result besides the program and the
/// configuration, as this rank sees it. The function itself finds out the CPU, the
/// instruction sets of ATen and of this program's kernels, environment variables that
/// limit the libraries, threads and LibTorch. The session gives the rest in `place`:
/// layout, device, and the libraries that compute sums over ranks, products and
/// attention. Equal fingerprints give equal bits.
Json numerics_fingerprint(const Json& place);

/// Returns one fingerprint for all ranks. Where the ranks differ, a field is the list of
/// the values that occur.
Json merge_fingerprints(const std::vector<Json>& of_ranks);

/// Returns the fingerprint of all ranks, which lie as `layout` says and compute this
/// network. Collective.
Json fingerprint_of(const Machine& machine, const layout::LayoutDescription& layout,
                    const families::Network& network);

/// How a checkpoint's fingerprint compares with the present fingerprint.
struct FingerprintComparison {
  /// "threads was 2, is 1; ...": the bits will differ. Empty: no difference is known.
  std::string differences;
  /// "kernels, device": fields that the checkpoint does not have, because an older
  /// version or an import wrote it. Empty: it has all fields.
  std::string unknown;
};
FingerprintComparison compare_fingerprints(const Json& saved, const Json& now);

}  // namespace longhaul::session
