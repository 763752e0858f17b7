#include <immintrin.h>

#include "longhaul/tokenizer/unicode/ascii_classes.h"

namespace longhaul::tokenizer {
namespace {

uint64_t mask(__m256i low, __m256i high) {
  return static_cast<uint32_t>(_mm256_movemask_epi8(low)) |
         uint64_t{static_cast<uint32_t>(_mm256_movemask_epi8(high))} << 32;
}

/// Returns a bit for each byte from `first` to `first` + `count` - 1.
__m256i within(__m256i bytes, char first, char count) {
  const __m256i distance = _mm256_sub_epi8(bytes, _mm256_set1_epi8(first));
  const __m256i last = _mm256_set1_epi8(static_cast<char>(count - 1));
  return _mm256_cmpeq_epi8(_mm256_min_epu8(distance, last), distance);
}

__m256i equal(__m256i bytes, char byte) {
  return _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(byte));
}

}  // namespace

void classify_ascii_avx2(const char* text, AsciiClasses& classes) {
  const auto load = [&](int half) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text) + half);
  };
  const __m256i a = load(0);
  const __m256i b = load(1);
  const __m256i to_lower = _mm256_set1_epi8(0x20);
  classes.letters = mask(within(_mm256_or_si256(a, to_lower), 'a', 26),
                         within(_mm256_or_si256(b, to_lower), 'a', 26));
  classes.uppers = mask(within(a, 'A', 26), within(b, 'A', 26));
  classes.digits = mask(within(a, '0', 10), within(b, '0', 10));
  classes.blanks = mask(equal(a, ' '), equal(b, ' '));
  classes.spaces = classes.blanks | mask(within(a, '\t', 5), within(b, '\t', 5));
  classes.newlines = mask(_mm256_or_si256(equal(a, '\n'), equal(a, '\r')),
                          _mm256_or_si256(equal(b, '\n'), equal(b, '\r')));
  classes.quotes = mask(equal(a, '\''), equal(b, '\''));
  classes.slashes = mask(equal(a, '/'), equal(b, '/'));
  classes.others = mask(a, b);
}

}  // namespace longhaul::tokenizer
