#pragma once

#include <string>

#include "tests/accelerator/board.h"

namespace longhaul::softdev {

/// Follows what the first operation of a process's stream waits for, over all ranks that
/// can be reached. An operation may wait behind another operation in its stream. It may
/// also not have been started, because the thread that would start it waits for a stream.
/// Returns the circle in words if the chain comes back to an operation, else an empty
/// text. The streams may change meanwhile.
std::string find_circle(BoardPlace place, int queue);

}  // namespace longhaul::softdev
