// Takes the place of system::best_isa() in a program that is linked with
// --wrap=_ZN8longhaul6system8best_isaEv. LONGHAUL_TEST_ISA names the instruction set by
// which the program calculates; where the CPU lacks this set, it is the CPU's best.
#include <cstdlib>
#include <string_view>

#include "longhaul/system/isa.h"

using longhaul::system::Isa;

extern "C" Isa __real__ZN8longhaul6system8best_isaEv();

extern "C" Isa __wrap__ZN8longhaul6system8best_isaEv() {
  static const Isa kIsa = [] {
    const Isa best = __real__ZN8longhaul6system8best_isaEv();
    const char* name = std::getenv("LONGHAUL_TEST_ISA");
    for (const Isa isa : {Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16}) {
      if (name == nullptr || isa > best) break;
      if (longhaul::system::isa_name(isa) == std::string_view(name)) return isa;
    }
    return best;
  }();
  return kIsa;
}
