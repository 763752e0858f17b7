#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <vector>

#include "longhaul/data/sources/token_source.h"

namespace longhaul::train {

/// Looks at all rows of data whose format does not say which ids it holds, on a thread
/// beside training, so that a bad row ends the run soon and not when its turn comes. One
/// rank of a run does it for all.
class DataCheck {
 public:
  /// Without sources there is nothing to do.
  explicit DataCheck(std::vector<std::shared_ptr<const data::TokenSource>> sources);
  ~DataCheck();
  DataCheck(const DataCheck&) = delete;
  DataCheck& operator=(const DataCheck&) = delete;

  /// Throws the InputError of a bad row once it is found; waits so long for the end.
  void settle(double seconds = 0.0);
  /// Waits until all is seen.
  void finish();

 private:
  std::atomic<bool> stop_ = false;
  std::future<void> under_way_;
};

}  // namespace longhaul::train
