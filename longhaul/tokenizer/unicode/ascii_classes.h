#pragma once

#include <cstdint>

#include "longhaul/system/isa.h"

// Files that are compiled for one instruction set include this header. It must not
// include parts of the standard library that could be instantiated there.
namespace longhaul::tokenizer {

/// The classes of 64 bytes, one bit per byte, the first byte in the lowest bit.
struct AsciiClasses {
  uint64_t letters = 0;
  uint64_t uppers = 0;
  uint64_t digits = 0;
  uint64_t spaces = 0;    ///< \s: space, \t \n \v \f \r
  uint64_t newlines = 0;  ///< \n and \r
  uint64_t blanks = 0;    ///< the space alone
  uint64_t quotes = 0;    ///< '
  uint64_t slashes = 0;   ///< /
  uint64_t others = 0;    ///< bytes that are not ASCII
};

/// Classifies the 64 bytes at `text`.
using ClassifyAscii = void (*)(const char* text, AsciiClasses& classes);

void classify_ascii_avx2(const char* text, AsciiClasses& classes);
void classify_ascii_avx512(const char* text, AsciiClasses& classes);

inline ClassifyAscii ascii_classifier(system::Isa isa) {
  return isa == system::Isa::Avx2 ? classify_ascii_avx2 : classify_ascii_avx512;
}

}  // namespace longhaul::tokenizer
