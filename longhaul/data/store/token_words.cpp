#include "longhaul/data/store/token_words.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "stores are little-endian and are read and written as memory holds them");

constexpr uint32_t kThreeBytes = 0xFFFFFF;

template <typename Word>
void append_words(std::span<const TokenId> tokens, std::vector<std::byte>& out) {
  const size_t begin = out.size();
  out.resize(begin + tokens.size() * sizeof(Word));
  auto* const to = reinterpret_cast<Word*>(out.data() + begin);
  for (size_t i = 0; i < tokens.size(); ++i) to[i] = static_cast<Word>(tokens[i]);
}

void append_threes(std::span<const TokenId> tokens, std::vector<std::byte>& out) {
  const size_t begin = out.size();
  // Each is written as four bytes, of which the next one overwrites the last.
  out.resize(begin + tokens.size() * 3 + 1);
  std::byte* to = out.data() + begin;
  for (const TokenId token : tokens) {
    std::memcpy(to, &token, sizeof(token));
    to += 3;
  }
  out.pop_back();
}

template <typename Word>
uint32_t read_words(const std::byte* from, std::span<int32_t> out) {
  uint32_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    Word word;
    std::memcpy(&word, from + i * sizeof(Word), sizeof(Word));
    largest = std::max(largest, static_cast<uint32_t>(word));
    out[i] = static_cast<int32_t>(word);
  }
  return largest;
}

uint32_t read_threes(const std::byte* from, std::span<int32_t> out) {
  if (out.empty()) return 0;
  uint32_t largest = 0;
  uint32_t word = 0;
  const size_t last = out.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    std::memcpy(&word, from + i * 3, sizeof(word));
    word &= kThreeBytes;
    largest = std::max(largest, word);
    out[i] = static_cast<int32_t>(word);
  }
  word = 0;
  std::memcpy(&word, from + last * 3, 3);
  out[last] = static_cast<int32_t>(word);
  return std::max(largest, word);
}

}  // namespace

int token_bytes_for(int64_t vocab_size) {
  if (vocab_size <= int64_t{1} << 16) return 2;
  return vocab_size <= int64_t{1} << 24 ? 3 : 4;
}

bool is_token_bytes(int64_t bytes) { return bytes >= 2 && bytes <= 4; }

void append_tokens(std::span<const TokenId> tokens, int token_bytes,
                   std::vector<std::byte>& out) {
  LH_ASSERT(is_token_bytes(token_bytes), "tokens of {} bytes", token_bytes);
  if (token_bytes == 2) return append_words<uint16_t>(tokens, out);
  if (token_bytes == 3) return append_threes(tokens, out);
  append_words<uint32_t>(tokens, out);
}

uint32_t read_tokens(const std::byte* from, int token_bytes, std::span<int32_t> out) {
  LH_ASSERT(is_token_bytes(token_bytes), "tokens of {} bytes", token_bytes);
  if (token_bytes == 2) return read_words<uint16_t>(from, out);
  if (token_bytes == 3) return read_threes(from, out);
  return read_words<uint32_t>(from, out);
}

}  // namespace longhaul::data
