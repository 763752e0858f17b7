#pragma once

#include <string_view>

namespace longhaul::softdev {

/// Returns true where the device is to make the mistake `name` in the program's place, so
/// that a run can show that the mistake is reported. SOFTDEV_FAULT="NAME:N" asks for the
/// mistake NAME at the Nth chance to make it; a call is a chance.
bool planted(std::string_view name);

/// Returns true where the device `device` is to stop for good, by the mistake `name`, at
/// this operation between ranks. SOFTDEV_FAULT_DEVICE says which device it is (1); the
/// operations of that device are the chances.
bool planted_stop(std::string_view name, int device);

/// Returns true where SOFTDEV_FAULT names this mistake, for chances that take time to
/// find.
bool may_be_planted(std::string_view name);

}  // namespace longhaul::softdev
