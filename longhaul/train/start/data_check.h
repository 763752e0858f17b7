#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <vector>

#include "longhaul/data/sources/token_source.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Returns the data that rank 0 checks, since its format does not say which ids it holds.
/// The other ranks check nothing.
std::vector<std::shared_ptr<const data::TokenSource>> unproven_sources(
    const TrainingSession& session);

/// Checks, on a thread beside training, all rows of data whose format does not say which
/// ids it holds, so that a bad row ends the run soon and not only when its turn comes.
/// One rank of a run checks for all.
class DataCheck {
 public:
  /// Begins the check; does nothing without sources.
  explicit DataCheck(std::vector<std::shared_ptr<const data::TokenSource>> sources);
  ~DataCheck();
  DataCheck(const DataCheck&) = delete;
  DataCheck& operator=(const DataCheck&) = delete;

  /// Throws the InputError of a bad row that was found; waits at most `seconds` for the
  /// end of the check.
  void settle(double seconds = 0.0);
  /// Waits for the end of the check; throws as settle() does.
  void finish();

 private:
  std::atomic<bool> stop_ = false;
  std::future<void> under_way_;
};

}  // namespace longhaul::train
