#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "longhaul/base/json.h"

namespace longhaul::optim {

/// The number of updates that each parameter of the whole model has had, from which the
/// bias correction of the parameter follows. A parameter that was frozen for some steps
/// has had fewer updates than the run has made: as in torch, the state of a parameter
/// begins with its own first update.
class UpdateCounts {
 public:
  UpdateCounts() = default;
  /// Makes the counts of a run of `updates` updates. `fewer` names the parameters that
  /// have had another number of updates.
  explicit UpdateCounts(int64_t updates, std::map<std::string, int64_t> fewer = {});

  /// Returns the updates that the run has made.
  int64_t of_run() const { return updates_; }
  int64_t of(const std::string& parameter) const;
  /// Returns the updates of the parameters that have had fewer updates than the run has
  /// made.
  const std::map<std::string, int64_t>& fewer() const { return fewer_; }

  /// Counts one update of all parameters but `frozen`.
  void count(const std::set<std::string>& frozen);
  /// Makes the next update of these parameters their first, since their moments are gone.
  void begin_anew(const std::set<std::string>& parameters);

  /// Returns fewer() by count, with the names of the parameters of each count.
  Json fewer_to_json() const;
  /// Reads what fewer_to_json() has written. Throws InputError unless each count lies
  /// from 0 to `updates`.
  static UpdateCounts from_json(int64_t updates, const Json& fewer);

  bool operator==(const UpdateCounts&) const = default;

 private:
  void keep_fewer();

  int64_t updates_ = 0;
  std::map<std::string, int64_t> fewer_;
};

}  // namespace longhaul::optim
