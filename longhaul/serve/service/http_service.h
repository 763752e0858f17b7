#pragma once

namespace longhaul::serve {

/// Speaks HTTP for rank 0, which is at the other end of `socket` (serve/protocol.h),
/// until that end closes. Returns the exit code of the program.
int serve_http(int socket);

}  // namespace longhaul::serve
