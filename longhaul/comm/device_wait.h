#pragma once

#include <functional>

namespace longhaul::comm {

/// Waits for a device: asks `reached` again and again, and sleeps a little longer after
/// each time, 200 us at most. `meanwhile` is called before each sleep. The wait has no
/// limit of its own: `reached` or `meanwhile` must throw when there is nothing to wait
/// for any more.
void wait_for_device(const std::function<bool()>& reached,
                     const std::function<void()>& meanwhile);

}  // namespace longhaul::comm
