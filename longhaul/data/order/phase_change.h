#pragma once

#include <string>
#include <vector>

#include "longhaul/data/order/cursor.h"

namespace longhaul::data {

/// One reason why a new phase begins.
struct PhaseChange {
  std::string text;  ///< a line for people
  /// True when a source keeps its name but holds other data. No setting shows such a
  /// change.
  bool of_content = false;
};

/// Returns the reasons why `now` is another stream than `before`; empty for equal
/// streams.
std::vector<PhaseChange> phase_changes(const Phase& before, const Phase& now);

}  // namespace longhaul::data
