#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "longhaul/data/open_source.h"
#include "longhaul/data/store/store_source.h"
#include "longhaul/objects/pieces.h"
#include "tests/support/memory_objects.h"
#include "tests/support/store_build.h"

namespace longhaul::data {
namespace {

constexpr int64_t kLength = 16;
const objects::Address kStore{"bucket", "store"};

/// A store of several shards on the disk, and the same store as objects.
class StoreInPieces : public BuildTest {
 protected:
  StoreInPieces() {
    BuildOptions wanted = options(many_documents(60));
    wanted.part_bytes = 500;
    info = build_store(&tokenizer, wanted).train;
    for (const auto& [name, content] : contents(dir / "store")) {
      memory.put("store/" + name, content);
    }
  }
  uint64_t bytes_of(const StoreShard& shard) const {
    uint64_t bytes = 0;
    for (const StoreFile& file : shard.files()) bytes += file.bytes;
    return bytes;
  }
  uint64_t largest() const {
    uint64_t bytes = 0;
    for (const StoreShard& shard : info.shards) bytes = std::max(bytes, bytes_of(shard));
    return bytes;
  }
  uint64_t beside_shards() const {
    uint64_t bytes = 0;
    for (const auto& [name, content] : contents(dir / "store")) {
      if (!is_shard_file(name)) bytes += content.size();
    }
    return bytes;
  }
  std::shared_ptr<const objects::Pieces> pieces(uint64_t most_bytes = 0) {
    return std::make_shared<const objects::Pieces>(
        std::make_shared<objects::LocalCopies>(memory.copy_requests(), dir / "cache",
                                               most_bytes),
        kStore, memory.list(kStore, true), is_shard_file);
  }
  std::unique_ptr<TokenSource> source(uint64_t most_bytes = 0, bool mask = true) {
    const auto of = pieces(most_bytes);
    return store_source(of->dir(), kLength, mask, true, of);
  }
  /// Returns the token files that were fetched, one entry for each fetch.
  std::vector<std::string> fetched() const {
    std::vector<std::string> names;
    for (const auto& request : memory.requests()) {
      if (request.key.starts_with("store/tokens_")) names.push_back(request.key);
    }
    return names;
  }
  static void expect_same(const TokenSource& a, const TokenSource& b, int64_t first) {
    TokenBatch one;
    TokenBatch other;
    a.shape(one, 1);
    b.shape(other, 1);
    for (int64_t i = first; i < a.num_sequences(); ++i) {
      a.read(i, one, 0);
      b.read(i, other, 0);
      ASSERT_EQ(one.tokens, other.tokens) << i;
      ASSERT_EQ(one.targets, other.targets) << i;
      ASSERT_EQ(one.positions, other.positions) << i;
      ASSERT_EQ(one.document_start, other.document_start) << i;
    }
  }

  StoreInfo info;
  MemoryObjects memory;
};

TEST_F(StoreInPieces, GivesWhatTheStoreOnTheDiskGives) {
  ASSERT_GE(info.shards.size(), 4U);
  const auto there = source();
  EXPECT_EQ(fetched().size(), 0U);
  const auto here = open_source(dir / "store", kLength, true);
  EXPECT_EQ(there->fingerprint(), here->fingerprint());
  EXPECT_EQ(there->num_sequences(), here->num_sequences());
  EXPECT_HAS(there->describe(), "shard by shard");
  expect_same(*there, *here, 0);
  EXPECT_EQ(fetched().size(), info.shards.size());
}

TEST_F(StoreInPieces, IsReadThroughACacheThatHoldsTwoShards) {
  const uint64_t limit = beside_shards() + 2 * largest();
  const auto there = source(limit);
  const auto here = open_source(dir / "store", kLength, true);
  for (int epoch = 0; epoch < 2; ++epoch) expect_same(*there, *here, 0);
  uint64_t kept = 0;
  for (const auto& [name, content] : contents(dir / "cache")) {
    const bool own = name.ends_with("copy.json") || name.ends_with("proved");
    if (!own) kept += content.size();
  }
  EXPECT_LE(kept, limit);
}

TEST_F(StoreInPieces, BeginsWithTheShardOfTheFirstSequenceThatIsRead) {
  const auto there = source();
  const auto here = open_source(dir / "store", kLength, true);
  const int64_t in_last =
      (info.tokens - info.shards.back().tokens + kLength - 1) / kLength;
  expect_same(*there, *here, in_last);
  EXPECT_EQ(fetched(), std::vector{"store/" + info.shards.back().token_file.name});
}

TEST_F(StoreInPieces, SaysWhereTheNextShardBegins) {
  const auto there = source();
  std::set<int64_t> begins;
  for (int64_t i = 0; i < there->num_sequences(); i = there->next_piece(i)) {
    begins.insert(i);
  }
  std::set<int64_t> expected;
  int64_t token = 0;
  for (const StoreShard& shard : info.shards) {
    const int64_t first = (token + kLength - 1) / kLength;
    if (first < there->num_sequences()) expected.insert(first);
    token += shard.tokens;
  }
  EXPECT_EQ(begins, expected);
  const auto here = open_source(dir / "store", kLength);
  EXPECT_EQ(here->next_piece(0), here->num_sequences());
}

TEST_F(StoreInPieces, RefusesAtOnceACacheThatIsTooSmall) {
  const std::string message =
      input_error([&] { (void)source(beside_shards() + largest()); });
  EXPECT_HAS(message, "s3://bucket/store");
  EXPECT_HAS(message, "data.cache_gb");
}

TEST_F(StoreInPieces, NamesAShardThatWasReplacedSinceTheStart) {
  const auto there = source();
  const std::string name = info.shards[1].token_file.name;
  memory.put("store/" + name, std::string(info.shards[1].token_file.bytes, 'x'));
  const auto here = open_source(dir / "store", kLength, true);
  EXPECT_HAS(input_error([&] { expect_same(*there, *here, 0); }), "store/" + name);
}

TEST_F(StoreInPieces, FindsAShardOfAnotherBuild) {
  const std::string name = info.shards[0].token_file.name;
  memory.put("store/" + name, std::string(info.shards[0].token_file.bytes, '\1'));
  const auto there = source();
  const auto here = open_source(dir / "store", kLength, true);
  EXPECT_HAS(input_error([&] { expect_same(*there, *here, 0); }), "damaged");
  memory.put("store/" + name, "short");
  EXPECT_HAS(input_error([&] { (void)source(); }), "store.json says");
  memory.remove("store/" + name);
  EXPECT_HAS(input_error([&] { (void)source(); }), "no such object");
}

}  // namespace
}  // namespace longhaul::data
