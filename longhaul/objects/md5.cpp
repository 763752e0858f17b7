#include "longhaul/objects/md5.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace longhaul::objects {
namespace {

static_assert(std::endian::native == std::endian::little);

/// Returns the constants of the 64 steps: 2^32 |sin(step + 1)|.
std::array<uint32_t, 64> make_constants() {
  std::array<uint32_t, 64> constants{};
  for (size_t i = 0; i < constants.size(); ++i) {
    constants[i] =
        static_cast<uint32_t>(std::floor(std::ldexp(std::fabs(std::sin(i + 1.0)), 32)));
  }
  return constants;
}

const std::array<uint32_t, 64> kConstants = make_constants();

using Words = std::array<uint32_t, 16>;

/// Does the 16 steps of a round. Step i takes word (kFirst + kStride i) mod 16, and a
/// step rotates by one of `turns` in turn.
template <size_t kRound, size_t kFirst, size_t kStride, typename Mix>
void do_round(std::array<uint32_t, 4>& state, const Words& words,
              std::array<int, 4> turns, Mix mix) {
  auto [a, b, c, d] = state;
  const auto added = [&words](size_t i) {
    return kConstants[16 * kRound + i] + words[(kFirst + kStride * i) % 16];
  };
  for (size_t i = 0; i < 16; i += 4) {
    a = b + std::rotl(a + mix(b, c, d) + added(i), turns[0]);
    d = a + std::rotl(d + mix(a, b, c) + added(i + 1), turns[1]);
    c = d + std::rotl(c + mix(d, a, b) + added(i + 2), turns[2]);
    b = c + std::rotl(b + mix(c, d, a) + added(i + 3), turns[3]);
  }
  state = {a, b, c, d};
}

}  // namespace

void Md5::take_block(const std::byte* block) {
  Words words{};
  std::memcpy(words.data(), block, 64);
  using Word = uint32_t;
  std::array<Word, 4> s = state_;
  do_round<0, 0, 1>(s, words, {7, 12, 17, 22},
                    [](Word x, Word y, Word z) { return (x & y) | (~x & z); });
  do_round<1, 1, 5>(s, words, {5, 9, 14, 20},
                    [](Word x, Word y, Word z) { return (z & x) | (~z & y); });
  do_round<2, 5, 3>(s, words, {4, 11, 16, 23},
                    [](Word x, Word y, Word z) { return x ^ y ^ z; });
  do_round<3, 0, 7>(s, words, {6, 10, 15, 21},
                    [](Word x, Word y, Word z) { return y ^ (x | ~z); });
  for (size_t i = 0; i < 4; ++i) state_[i] += s[i];
}

void Md5::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t held = size_ % 64;
    if (held == 0 && bytes.size() >= 64) {
      take_block(bytes.data());
      size_ += 64;
      bytes = bytes.subspan(64);
      continue;
    }
    const size_t count = std::min(64 - held, bytes.size());
    std::memcpy(block_.data() + held, bytes.data(), count);
    size_ += count;
    bytes = bytes.subspan(count);
    if (size_ % 64 == 0) take_block(block_.data());
  }
}

Md5::Digest Md5::finish() {
  const uint64_t bits = 8 * size_;
  constexpr std::array<std::byte, 64> kPadding = {std::byte{0x80}};
  update(std::span(kPadding).first(1 + (119 - size_ % 64) % 64));
  update(std::as_bytes(std::span(&bits, 1)));
  Digest digest{};
  std::memcpy(digest.data(), state_.data(), digest.size());
  return digest;
}

}  // namespace longhaul::objects
