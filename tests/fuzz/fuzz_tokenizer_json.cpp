#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/tokenizer/file/tokenizer_json.h"

// Takes any bytes for a tokenizer.json. The result is a clear InputError, or a tokenizer
// that can be used.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace longhaul;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  try {
    const Json root = tokenizer::read_tokenizer_root(text, "fuzz");
    const auto tokenizer = tokenizer::tokenizer_of(root, "fuzz");
    std::vector<tokenizer::TokenId> ids;
    tokenizer->encode("ab 12\n <|x|>\xC3\xA9", true, ids);
    for (const tokenizer::TokenId id : ids) {
      if (int64_t{id} >= tokenizer->vocab_size()) __builtin_trap();
    }
    tokenizer->decode(ids, false);
  } catch (const InputError&) {
  }
  return 0;
}
