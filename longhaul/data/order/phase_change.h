#pragma once

#include <string>
#include <vector>

#include "longhaul/data/order/cursor.h"

namespace longhaul::data {

/// One reason why a new phase begins.
struct PhaseChange {
  std::string text;  ///< a line for people
  /// True when a source of the same name holds other data, which no setting says.
  bool of_content = false;
};

/// Returns what makes `now` another stream than `before`; empty for the same stream.
std::vector<PhaseChange> phase_changes(const Phase& before, const Phase& now);

}  // namespace longhaul::data
