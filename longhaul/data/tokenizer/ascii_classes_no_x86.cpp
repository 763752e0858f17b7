#include "longhaul/data/tokenizer/ascii_classes.h"

namespace longhaul::data {

const ClassifyAscii* ascii_classifiers(size_t& count) {
  static const ClassifyAscii all[] = {classify_ascii_any};
  count = 1;
  return all;
}

}  // namespace longhaul::data
