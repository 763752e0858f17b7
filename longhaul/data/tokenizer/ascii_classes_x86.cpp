#include "longhaul/data/tokenizer/ascii_classes.h"

namespace longhaul::data {

const ClassifyAscii* ascii_classifiers(size_t& count) {
  static const ClassifyAscii all[] = {classify_ascii_avx512, classify_ascii_avx2,
                                      classify_ascii_any};
  size_t first = 2;
  if (__builtin_cpu_supports("avx2")) first = 1;
  if (first == 1 && __builtin_cpu_supports("avx512bw")) first = 0;
  count = 3 - first;
  return all + first;
}

}  // namespace longhaul::data
