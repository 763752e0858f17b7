#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "longhaul/cluster/health/health.h"

namespace longhaul::cluster {

/// The cores that this process may use.
std::vector<int> usable_cores();

/// Lets a test damage a result before it is judged.
using Damage = std::function<void(int core, std::span<std::byte> result)>;

/// Multiplies matrices of known contents for so long on every core at once, each thread
/// tied to its core, in fp64 and fp32, and compares the hash of every product with a
/// constant. All numbers are integers whose sums are exact, so that the constant holds
/// for every order of additions and every instruction set.
HealthCheck check_compute(double seconds, const Damage& damage = {});

/// Fills at most so many bytes, and no more than a tenth of what is free, with patterns
/// (each word its own address, its complement, a walking bit) and reads them back; stops
/// filling when half of the time is over.
HealthCheck check_memory(double seconds, uint64_t max_bytes, const Damage& damage = {});

/// The hashes that every product must have.
std::string known_product_hash_f64();
std::string known_product_hash_f32();

}  // namespace longhaul::cluster
