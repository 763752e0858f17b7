#pragma once

#include <functional>
#include <memory>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/objects/access.h"

namespace longhaul::apps {

/// Returns a local copy of a checkpoint that a mirror holds: of the step that the address
/// names, or of the mirror's newest whole one. It returns null where the address is of
/// another kind. The copy is one of the objects' copies, which stays while the result
/// lives. Warns of newer steps that are not whole. Throws InputError where a step is
/// named that is not whole, where no step is, and where its bytes are not those of its
/// manifest. `tell` gets lines for people. `prove_anew` has the copy compared with its
/// hashes, also where that was done before.
std::shared_ptr<const fs::path> mirrored_checkpoint(
    const objects::Address& address, const objects::Access& objects,
    const std::function<void(const std::string&)>& tell, bool prove_anew = false);

}  // namespace longhaul::apps
