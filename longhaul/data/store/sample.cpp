#include "longhaul/data/store/sample.h"

#include <algorithm>

namespace longhaul::data {
namespace {

constexpr int64_t kFirst = 40;
constexpr int64_t kLast = 12;

std::string decode(const TokenStore& store, const tokenizer::Tokenizer& tokenizer,
                   int64_t begin, int64_t end) {
  std::vector<int32_t> ids(static_cast<size_t>(end - begin));
  store.read(begin, ids);
  const std::string text = tokenizer.decode({ids.begin(), ids.end()}, false);
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      line += ' ';  // no control sequence of a corpus reaches the terminal
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace

std::string decoded_sample(const TokenStore& store,
                           const tokenizer::Tokenizer& tokenizer) {
  const int64_t end = store.document_end(0);
  if (end <= kFirst + kLast) return decode(store, tokenizer, 0, end);
  return decode(store, tokenizer, 0, kFirst) + " [...] " +
         decode(store, tokenizer, end - kLast, end);
}

}  // namespace longhaul::data
