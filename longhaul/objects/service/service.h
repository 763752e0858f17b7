#pragma once

namespace longhaul::objects {

/// Answers requests (objects/protocol.h) that come by `socket` until its other end
/// closes, kRequestsInFlight side by side. `memory` is that of the SharedPlaces. Returns
/// the exit code of the program.
int serve_objects(int socket, int memory);

}  // namespace longhaul::objects
