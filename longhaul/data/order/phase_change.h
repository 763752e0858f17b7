#pragma once

#include <string>
#include <vector>

#include "longhaul/data/order/cursor.h"

namespace longhaul::data {

/// Why a phase follows another one, a line for people.
struct PhaseChange {
  std::string text;
  /// A source that is named as before holds other data: nobody has said so in a setting.
  bool of_content = false;
};

/// What makes `now` another stream than `before`; empty when it is the same one.
std::vector<PhaseChange> phase_changes(const Phase& before, const Phase& now);

}  // namespace longhaul::data
