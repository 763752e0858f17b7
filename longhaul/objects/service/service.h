#pragma once

namespace longhaul::objects {

/// Answers requests (objects/protocol.h) that come by `socket` until its other end
/// closes, kRequestsInFlight side by side. Returns the exit code of the program.
int serve_objects(int socket);

}  // namespace longhaul::objects
