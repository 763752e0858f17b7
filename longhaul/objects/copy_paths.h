#pragma once

#include <string>

#include "longhaul/base/file.h"
#include "longhaul/objects/address.h"

namespace longhaul::objects {

/// Notes that a path of this machine is a copy of what an address names.
void note_copy(const fs::path& path, const Address& address);

/// Returns a text for people in which the addresses stand in place of the paths of the
/// copies that this process has used. Any thread may call it.
std::string with_addresses(std::string text);

}  // namespace longhaul::objects
