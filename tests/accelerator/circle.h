#pragma once

#include <string>

#include "tests/accelerator/board.h"

namespace longhaul::softdev {

/// Follows what the first operation of a process's stream waits for, over all ranks that
/// can be reached: an operation behind another one in a stream, or one that a thread has
/// not started since it waits for a stream itself. Where that comes back to where it was,
/// the circle in words; empty otherwise. What it sees may change while it looks.
std::string find_circle(BoardPlace place, int queue);

}  // namespace longhaul::softdev
