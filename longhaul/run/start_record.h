#pragma once

#include <cstdint>

#include "longhaul/base/file.h"

namespace longhaul::run {

/// Remembers, in run_dir/resume.json, how many starts in a row were made from one
/// checkpoint and did not get through a step: such a checkpoint may be what breaks them.
/// Only rank 0 has one.
class StartRecord {
 public:
  explicit StartRecord(const fs::path& run_dir);

  /// Returns how many starts from this step did not end well.
  int failed_starts(int64_t step) const { return step == step_ ? starts_ : 0; }
  /// Notes that a start from this step begins.
  void begin(int64_t step);
  /// Notes that the start has got through: a step is done, or the run was asked to end.
  void done();

 private:
  fs::path path_;
  int64_t step_ = -1;
  int starts_ = 0;
};

}  // namespace longhaul::run
