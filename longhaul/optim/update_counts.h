#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "longhaul/base/json.h"

namespace longhaul::optim {

/// How many updates each parameter of the whole model has had, from which its bias
/// correction follows. A parameter that was frozen for some steps has had fewer than the
/// run has made: as in torch, its state begins with its own first update.
class UpdateCounts {
 public:
  UpdateCounts() = default;
  /// `fewer`: by name, those that had another number than `updates`.
  explicit UpdateCounts(int64_t updates, std::map<std::string, int64_t> fewer = {});

  /// That the run has made.
  int64_t of_run() const { return updates_; }
  int64_t of(const std::string& parameter) const;
  /// By name: those that had fewer than the run has made.
  const std::map<std::string, int64_t>& fewer() const { return fewer_; }

  /// One update of all but `frozen`.
  void count(const std::set<std::string>& frozen);
  /// Without the moments of these: their next update is their first.
  void begin_anew(const std::set<std::string>& parameters);

  /// Of fewer(), the parameters of one count together.
  Json fewer_to_json() const;
  /// InputError unless each count lies from 0 to `updates`.
  static UpdateCounts from_json(int64_t updates, const Json& fewer);

  bool operator==(const UpdateCounts&) const = default;

 private:
  void keep_fewer();

  int64_t updates_ = 0;
  std::map<std::string, int64_t> fewer_;
};

}  // namespace longhaul::optim
