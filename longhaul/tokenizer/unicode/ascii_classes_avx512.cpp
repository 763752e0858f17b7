#include <immintrin.h>

#include "longhaul/tokenizer/unicode/ascii_classes.h"

namespace longhaul::tokenizer {
namespace {

/// Returns a bit for each byte from `first` to `first` + `count` - 1.
uint64_t within(__m512i bytes, char first, char count) {
  return _mm512_cmplt_epu8_mask(_mm512_sub_epi8(bytes, _mm512_set1_epi8(first)),
                                _mm512_set1_epi8(count));
}

uint64_t equal(__m512i bytes, char byte) {
  return _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(byte));
}

}  // namespace

void classify_ascii_avx512(const char* text, AsciiClasses& classes) {
  const __m512i bytes = _mm512_loadu_si512(text);
  const __m512i lower = _mm512_or_si512(bytes, _mm512_set1_epi8(0x20));
  classes.letters = within(lower, 'a', 26);
  classes.uppers = within(bytes, 'A', 26);
  classes.digits = within(bytes, '0', 10);
  classes.blanks = equal(bytes, ' ');
  classes.spaces = classes.blanks | within(bytes, '\t', 5);
  classes.newlines = equal(bytes, '\n') | equal(bytes, '\r');
  classes.quotes = equal(bytes, '\'');
  classes.slashes = equal(bytes, '/');
  classes.others = _mm512_movepi8_mask(bytes);
}

}  // namespace longhaul::tokenizer
