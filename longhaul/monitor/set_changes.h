#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/monitor/run_files.h"

namespace longhaul::monitor {

/// How a validation set's loss has changed since the run's first validation of it. For an
/// old domain that is what the run has forgotten.
struct SetChange {
  std::string name;                  ///< plain text
  std::optional<double> stop_above;  ///< nats; given: the set is of an old domain
  /// Loss by step, at least one; a step that was done again has its last value.
  std::map<int64_t, double> losses;

  int64_t first_step() const { return losses.begin()->first; }
  double since_first(double loss) const { return loss - losses.begin()->second; }
  double change() const { return since_first(losses.rbegin()->second); }
  /// Returns "wiki (old) +0.1200 since step 0, stops above +0.05".
  std::string describe() const;
};

/// Returns the changes of all validation sets: first the sets of old domains, then the
/// other sets, each of the two groups in the order of names.
std::vector<SetChange> set_changes(const RunFiles& run);

Json to_json(const std::vector<SetChange>& changes);

}  // namespace longhaul::monitor
