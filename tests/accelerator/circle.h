#pragma once

#include <string>

#include "tests/accelerator/board.h"

namespace longhaul::softdev {

/// Follows what the first operation of a process's stream waits for, over all ranks that
/// can be reached: an operation waits behind another one in its stream, or has not been
/// started by a thread that waits for a stream itself. Returns the circle in words where
/// the chain comes back to an operation; empty otherwise. The streams may change
/// meanwhile.
std::string find_circle(BoardPlace place, int queue);

}  // namespace longhaul::softdev
