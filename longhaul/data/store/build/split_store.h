#pragma once

#include <cstdint>
#include <functional>

#include "longhaul/data/store/store.h"

namespace longhaul::data {

struct SplitOptions {
  fs::path out_train;
  fs::path out_validation;
  double share = 0.0;     ///< of the documents that go to validation, or
  int64_t documents = 0;  ///< how many
  uint64_t seed = 0;
  int threads = 0;     ///< 0: all cores
  bool force = false;  ///< replace token stores that stand at the places
  /// Called with documents done and in all, one call at a time.
  std::function<void(int64_t, int64_t)> progress;
};

struct SplitReport {
  StoreInfo train;
  StoreInfo validation;
};

/// Cuts a token store in two by document, without tokenizing again. A keyed hash of a
/// document's tokens decides: equal documents are on one side, and the choice does not
/// depend on threads or on the other documents (with `documents`: on where the border
/// lies). With `documents` copies of the last one chosen come along, so that there may be
/// more. InputError when one side would be empty, or a place is taken.
SplitReport split_store(const fs::path& store, const SplitOptions& options);

}  // namespace longhaul::data
