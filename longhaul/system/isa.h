#pragma once

#include <cstdint>

// Included by files that are compiled for one instruction set: nothing of the standard
// library that could be instantiated there.
namespace longhaul {

/// Instruction sets, weakest first. A CPU that has one has all before it.
enum class Isa { Avx2, Avx512, Avx512Bf16, Amx };

/// The strongest set that this CPU has and the operating system lets programs use. Error:
/// it has not even the weakest.
Isa best_isa();
const char* isa_name(Isa isa);

/// Whether the CPU multiplies tiles of bf16, whatever the operating system lets programs
/// use.
bool cpu_has_amx();
/// Why the CPU's AMX is not used, and what to do; null where it is, or where there is
/// none.
const char* amx_refusal();

/// Bytes of a core's second cache; 2 MiB, that of all processors with AMX so far, where
/// the operating system does not tell.
int64_t second_cache_bytes();

}  // namespace longhaul
