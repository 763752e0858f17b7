#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "longhaul/cluster/health/health.h"

namespace longhaul::cluster {

/// Lets a test damage a result before it is judged.
using Damage = std::function<void(int core, std::span<std::byte> result)>;

/// Multiplies known matrices on every core at once for `seconds`, in fp64 and fp32, with
/// each thread bound to its core, and compares the hash of each product with a constant.
/// Fails for a core that computes wrong.
HealthCheck check_compute(double seconds, const Damage& damage = {});

/// Fills at most `max_bytes`, and at most a tenth of the free memory, with three patterns
/// and reads them back. Stops filling when half of the time is over. Fails for a word
/// that holds something else, and if no memory can be had.
HealthCheck check_memory(double seconds, uint64_t max_bytes, const Damage& damage = {});

}  // namespace longhaul::cluster
