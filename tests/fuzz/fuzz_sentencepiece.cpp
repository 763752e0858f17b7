#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/tokenizer/file/sentencepiece_tokenizer.h"

// Takes any bytes for a SentencePiece model. The result is a clear InputError, or a
// tokenizer that can be used.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace longhaul;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  try {
    const auto tokenizer = tokenizer::SentencePieceTokenizer::parse(text, "fuzz");
    std::vector<tokenizer::TokenId> ids;
    tokenizer->encode(" ab  12\n\xEF\xBC\xA1\xC3\xA9 ", true, ids);
    for (const tokenizer::TokenId id : ids) {
      if (int64_t{id} >= tokenizer->vocab_size()) __builtin_trap();
      tokenizer->token_bytes(id);
    }
    tokenizer->decode(ids, false);
  } catch (const InputError&) {
  }
  return 0;
}
