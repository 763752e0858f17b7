#pragma once

namespace longhaul::system {

/// Isolates a forked child that reads outside files, as its first act. The child keeps
/// `fd`, its way to the parent, as descriptor 3 and closes all others. It has /dev/null
/// as standard streams, and can gain no privileges. Returns 3. Calls only what is safe
/// after a fork.
int isolate_child(int fd);

}  // namespace longhaul::system
