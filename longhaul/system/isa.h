#pragma once

// Included by files that are compiled for one instruction set: nothing of the standard
// library that could be instantiated there.
namespace longhaul {

/// Instruction sets, weakest first. A CPU that has one has all before it.
enum class Isa { Avx2, Avx512, Avx512Bf16 };

/// The strongest set of this CPU. Error: it has not even the weakest.
Isa best_isa();
const char* isa_name(Isa isa);

}  // namespace longhaul
