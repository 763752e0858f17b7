#pragma once

#include <cstdint>

// Files that are compiled for one instruction set include this header. It must not
// include parts of the standard library whose templates could be instantiated in these
// files.
namespace longhaul::system {

/// Instruction sets, weakest first. A CPU that has a set has all sets before it.
enum class Isa { Avx2, Avx512, Avx512Bf16, Amx };

/// Returns the strongest set that this CPU has and the operating system lets programs
/// use. Throws Error (Internal) if the CPU lacks even the weakest.
Isa best_isa();
const char* isa_name(Isa isa);

/// Returns whether the CPU multiplies tiles of bf16, whatever the operating system lets
/// programs use.
bool cpu_has_amx();
/// Returns why the CPU's AMX is not used and what to do about it; null if it is used, or
/// if the CPU has none.
const char* amx_refusal();

/// Returns the bytes of a core's second-level cache. If the operating system does not
/// tell, it is 2 MiB, as on all processors with AMX so far.
int64_t second_cache_bytes();

}  // namespace longhaul::system
