#include "longhaul/base/hash.h"

#include "tests/support/scratch_directory.h"

namespace longhaul {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Hash, KnownAnswers) {
  // The program xxhsum -H128 prints these values.
  EXPECT_EQ(hash_hex(std::string_view("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_hex(std::string_view("abc")), "06b05ab6733a618578af5f94892f3950");
}

TEST(Hash, ANumberChangesWithAnyBit) {
  std::string text(100'000, 'a');
  const uint64_t before = hash_number(bytes_of(text));
  EXPECT_EQ(hash_number(bytes_of(std::string(text))), before);
  text[77'777] = static_cast<char>(text[77'777] ^ 1);
  EXPECT_NE(hash_number(bytes_of(text)), before);
  // The program xxhsum -H3 prints this value.
  EXPECT_EQ(hash_number({}), 0x2d06800538d394c2u);
}

TEST(BlockHasher, OneHashPerStartedMebibyteHoweverItIsFed) {
  std::string text(2 * kHashBlockBytes + 5, 'a');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 >> 3);
  const std::string_view view = text;
  const std::vector<std::string> expected = {
      hash_hex(view.substr(0, kHashBlockBytes)),
      hash_hex(view.substr(kHashBlockBytes, kHashBlockBytes)),
      hash_hex(view.substr(2 * kHashBlockBytes))};
  BlockHasher whole;
  whole.update(bytes_of(view));
  EXPECT_EQ(whole.finish(), expected);

  BlockHasher pieces;
  for (size_t at = 0; at < view.size(); at += 77777) {
    pieces.update(bytes_of(view.substr(at, 77777)));
  }
  EXPECT_EQ(pieces.finish(), expected);
}

TEST(BlockHasher, NothingHasNoBlockAndAFullBlockIsOne) {
  EXPECT_TRUE(BlockHasher().finish().empty());
  BlockHasher full;
  full.update(bytes_of(std::string(kHashBlockBytes, 'x')));
  EXPECT_EQ(full.finish().size(), 1U);
}

TEST(CombineHashes, DependsOnContentAndOrder) {
  EXPECT_EQ(combine_hashes({"a", "bc"}), hash_hex(std::string_view("abc")));
  EXPECT_NE(combine_hashes({"a", "b"}), combine_hashes({"b", "a"}));
}

}  // namespace
}  // namespace longhaul
