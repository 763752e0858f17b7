// Takes the place of system::best_isa() in a program that is linked with --wrap. The
// program calculates as on a CPU without AVX-512.
#include "longhaul/system/isa.h"

extern "C" longhaul::system::Isa __wrap__ZN8longhaul6system8best_isaEv() {
  return longhaul::system::Isa::Avx2;
}
