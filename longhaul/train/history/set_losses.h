#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/config/run_config.h"

namespace longhaul::train {

/// What a run remembers of the validations of one set. It is part of every checkpoint, so
/// that a run that goes on judges by the same first loss.
struct SetLoss {
  int64_t first_step = 0;
  double first = 0.0;  ///< loss of the run's first validation, in nats
  int64_t last_step = 0;
  double last = 0.0;  ///< loss of the newest validation; may not be finite
  bool operator==(const SetLoss&) const = default;
};

/// A validation set whose loss is further above its first loss than the settings allow.
struct RisenLoss {
  std::string name;
  SetLoss loss;
  double allowed = 0.0;
  /// Returns "validation wiki loss 1.90000 is 0.12000 above its 1.78000 at step 0, ...".
  std::string describe() const;
};

/// The losses of all validation sets, by the names of the sets.
class SetLosses {
 public:
  void note(const std::string& name, int64_t step, double loss);
  /// Takes the first losses of sets that this object lacks from `other`, which is of
  /// another checkpoint of the same run.
  void take_begins(const SetLosses& other);
  /// Returns the first of the sets whose newest loss is beyond its bound: above its first
  /// loss by more than its stop_above.
  std::optional<RisenLoss> risen(const std::vector<ValidationSource>& sets) const;

  bool empty() const { return sets_.empty(); }
  Json to_json() const;
  /// Reads what to_json() returns. Throws Json::exception if `json` has another form.
  static SetLosses from_json(const Json& json);
  bool operator==(const SetLosses&) const = default;

 private:
  std::map<std::string, SetLoss> sets_;
};

}  // namespace longhaul::train
