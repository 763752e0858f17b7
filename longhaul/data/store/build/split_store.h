#pragma once

#include <cstdint>
#include <functional>

#include "longhaul/data/store/store.h"

namespace longhaul::data {

struct SplitOptions {
  fs::path out_train;
  fs::path out_validation;
  double share = 0.0;     ///< share of the documents that go to validation, or 0
  int64_t documents = 0;  ///< number of documents that go to validation, or 0
  uint64_t seed = 0;
  int threads = 0;     ///< 0: all cores
  bool force = false;  ///< replace token stores that stand at the places
  /// Called with the number of documents done and the number of all documents, one call
  /// at a time.
  std::function<void(int64_t, int64_t)> progress;
};

struct SplitReport {
  StoreInfo train;
  StoreInfo validation;
};

/// Splits a token store in two by document, without tokenizing again. A keyed hash of a
/// document's tokens decides the side, so that equal documents are on one side. With
/// `share` the choice depends neither on threads nor on other documents. With `documents`
/// the threshold of the hash depends on all documents. Copies of the last chosen document
/// are also chosen, so that validation may get more documents than requested. Throws
/// InputError when one side would be empty, or a place is taken.
SplitReport split_store(const fs::path& store, const SplitOptions& options);

}  // namespace longhaul::data
