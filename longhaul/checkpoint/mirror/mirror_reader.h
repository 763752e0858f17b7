#pragma once

#include <functional>
#include <string>

#include "longhaul/checkpoint/mirror/mirror_listing.h"

namespace longhaul::checkpoint {

/// Copies a checkpoint of a mirror into a directory of checkpoints, and returns its step
/// directory. The files are copied into a temporary directory beside it, each is compared
/// with its hash in the manifest, and manifest.json appears last. So a copy that was
/// interrupted is no checkpoint. Throws InputError where a file is not what the manifest
/// says, and where the step is there already. `tell` gets a line every ten seconds, and
/// `complete` is called before manifest.json appears; both may be empty. Removes what
/// fetches that were killed have left.
fs::path fetch_checkpoint(MirrorStore& store, const MirrorStep& from,
                          const fs::path& checkpoints,
                          const std::function<void(const std::string&)>& tell = {},
                          const std::function<void()>& complete = {});

}  // namespace longhaul::checkpoint
