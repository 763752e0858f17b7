#pragma once

#include <string_view>

namespace longhaul::softdev {

/// A mistake that the device makes in the program's place, so that a run can show that it
/// is told: SOFTDEV_FAULT="NAME:N". True the Nth time that `name`, if it is that one, is
/// asked for: a chance to make it.
bool planted(std::string_view name);

/// Whether it is that one: for chances that take time to find.
bool may_be_planted(std::string_view name);

}  // namespace longhaul::softdev
