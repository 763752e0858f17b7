#include "longhaul/data/store/token_words.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "stores are little-endian and are read and written as memory holds them");

template <typename Word>
void append_words(std::span<const tokenizer::TokenId> tokens,
                  std::vector<std::byte>& out) {
  const size_t begin = out.size();
  out.resize(begin + tokens.size() * sizeof(Word));
  auto* const to = reinterpret_cast<Word*>(out.data() + begin);
  for (size_t i = 0; i < tokens.size(); ++i) to[i] = static_cast<Word>(tokens[i]);
}

void append_threes(std::span<const tokenizer::TokenId> tokens,
                   std::vector<std::byte>& out) {
  const size_t begin = out.size();
  // A token is written as four bytes, and the next token overwrites the fourth byte.
  out.resize(begin + tokens.size() * 3 + 1);
  std::byte* to = out.data() + begin;
  for (const tokenizer::TokenId token : tokens) {
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

// Vector types of GCC and Clang, for any processor.
using Bytes [[gnu::vector_size(16)]] = uint8_t;
using FourTokens [[gnu::vector_size(16)]] = uint32_t;

/// Returns the four tokens that the first 12 of 16 bytes hold.
FourTokens four_of_three(const std::byte* from) {
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof(bytes));
  constexpr int kZero = 16;  // the first byte of the second vector
  const Bytes spread =
      __builtin_shufflevector(bytes, Bytes{}, 0, 1, 2, kZero, 3, 4, 5, kZero,  //
                              6, 7, 8, kZero, 9, 10, 11, kZero);
  return std::bit_cast<FourTokens>(spread);
}

uint32_t read_threes(const std::byte* from, std::span<int32_t> out) {
  constexpr size_t kAtOnce = 4;
  constexpr size_t kLoaded = 6;  // tokens whose bytes include the 16 that are loaded
  size_t i = 0;
  FourTokens most = {};
  for (; i + kLoaded <= out.size(); i += kAtOnce) {
    const FourTokens tokens = four_of_three(from + i * 3);
    most = tokens > most ? tokens : most;
    std::memcpy(&out[i], &tokens, sizeof(tokens));
  }
  uint32_t largest = std::max({most[0], most[1], most[2], most[3]});
  for (; i < out.size(); ++i) {
    uint32_t word = 0;
    std::memcpy(&word, from + i * 3, 3);
    largest = std::max(largest, word);
    out[i] = static_cast<int32_t>(word);
  }
  return largest;
}

}  // namespace

int token_bytes_for(int64_t vocab_size) {
  if (vocab_size <= int64_t{1} << 16) return 2;
  return vocab_size <= int64_t{1} << 24 ? 3 : 4;
}

bool is_token_bytes(int64_t bytes) { return bytes >= 2 && bytes <= 4; }

void append_tokens(std::span<const tokenizer::TokenId> tokens, int token_bytes,
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
