#pragma once

namespace longhaul {

/// Whether what is written to this descriptor (1 or 2) reaches a person's terminal that
/// understands control codes. mpirun gives every rank a terminal of its own, whatever its
/// own output is: there its output counts, and none where it is on another machine.
bool is_terminal(int fd);

}  // namespace longhaul
