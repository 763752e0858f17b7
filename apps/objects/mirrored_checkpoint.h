#pragma once

#include <functional>
#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/objects/address.h"

namespace longhaul::apps {

/// Returns a local copy of a checkpoint that a mirror holds: of the step that the address
/// names, or of the mirror's newest whole one. It returns nothing where the address is of
/// another kind. The copy stays for the next call, beside the other copies, and is
/// fetched anew where the mirror's has changed. Throws InputError where a step is named
/// that is not whole. `tell` gets lines for people.
std::optional<fs::path> mirrored_checkpoint(
    const objects::Address& address, const std::function<void(const std::string&)>& tell);

}  // namespace longhaul::apps
