#include "longhaul/data/store/build/split_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/store_build.h"

namespace longhaul::data {
namespace {

class SplitTest : public BuildTest {
 protected:
  SplitOptions split(const std::string& name) {
    SplitOptions result;
    result.out_train = dir / (name + "-train");
    result.out_validation = dir / (name + "-val");
    result.threads = 2;
    return result;
  }
  /// Builds a store from token ids, without a tokenizer; some tokens are no targets.
  void build_ids(int count) {
    std::string corpus;
    for (int i = 0; i < count; ++i) {
      Json row;
      for (int k = 0; k <= i % 7; ++k) row["ids"].push_back((i / 2 * 31 + k) % 250);
      if (i % 5 == 0) row["attention_mask"] = std::vector<int>(row["ids"].size(), 1);
      if (i % 10 == 0) row["attention_mask"][0] = 0;
      corpus += row.dump() + "\n";
    }
    BuildOptions wanted = options(corpus);
    wanted.inputs.field = "ids";
    wanted.vocab_size = 256;
    wanted.part_bytes = 4000;
    build_store(nullptr, wanted);
  }
  using Documents = std::multiset<std::pair<std::vector<int32_t>, std::vector<uint8_t>>>;
  static Documents documents(const fs::path& path) {
    const TokenStore store(path);
    Documents result;
    int64_t begin = 0;
    for (int64_t d = 0; d < store.info().documents; ++d) {
      const int64_t end = store.document_end(d);
      std::vector<int32_t> ids(static_cast<size_t>(end - begin));
      std::vector<uint8_t> targets(ids.size());
      store.read(begin, ids);
      store.read_targets(begin, targets);
      result.emplace(ids, targets);
      begin = end;
    }
    return result;
  }
};

TEST_F(SplitTest, EveryDocumentIsOnOneSideAndEqualOnesOnTheSame) {
  build_ids(2000);
  SplitOptions wanted = split("a");
  wanted.share = 0.2;
  const SplitReport report = split_store(dir / "store", wanted);
  const Documents train = documents(wanted.out_train);
  const Documents validation = documents(wanted.out_validation);
  Documents both = train;
  both.insert(validation.begin(), validation.end());
  EXPECT_TRUE(both == documents(dir / "store"));
  EXPECT_NEAR(static_cast<double>(validation.size()), 400, 120);
  for (const auto& [ids, targets] : validation) {
    EXPECT_TRUE(std::none_of(train.begin(), train.end(),
                             [&](const auto& other) { return other.first == ids; }));
  }
  const StoreInfo whole = read_store_info(dir / "store");
  EXPECT_GT(whole.shards.size(), 3U);
  EXPECT_EQ(report.train.tokens + report.validation.tokens, whole.tokens);
  EXPECT_EQ(report.train.counts.not_targets + report.validation.counts.not_targets,
            whole.counts.not_targets);
  EXPECT_GT(whole.counts.not_targets, 0);
}

TEST_F(SplitTest, DoesNotDependOnThreadsAndAnotherSeedChoosesOthers) {
  build_ids(1000);
  SplitOptions one = split("one");
  one.documents = 100;
  one.threads = 1;
  SplitOptions two = split("two");
  two.documents = 100;
  two.threads = 3;
  const SplitReport first = split_store(dir / "store", one);
  split_store(dir / "store", two);
  EXPECT_TRUE(contents(one.out_train) == contents(two.out_train));
  EXPECT_TRUE(contents(one.out_validation) == contents(two.out_validation));
  EXPECT_GE(first.validation.documents, 100);
  EXPECT_LE(first.validation.documents, 120);  // with copies of the last chosen document
  SplitOptions other = split("other");
  other.documents = 100;
  other.seed = 1;
  split_store(dir / "store", other);
  EXPECT_FALSE(documents(other.out_validation) == documents(one.out_validation));
}

TEST_F(SplitTest, RefusesAnEmptySideAndATakenPlace) {
  build_ids(50);
  const std::string before = dir.listing();
  SplitOptions wanted = split("a");
  wanted.documents = 50;
  EXPECT_HAS(input_error([&] { split_store(dir / "store", wanted); }),
             "do not split into two sides");
  wanted.documents = 51;
  EXPECT_HAS(input_error([&] { split_store(dir / "store", wanted); }),
             "do not split into two sides");
  EXPECT_EQ(dir.listing(), before);
  wanted.documents = 10;
  split_store(dir / "store", wanted);
  EXPECT_HAS(input_error([&] { split_store(dir / "store", wanted); }), "--force");
  wanted.force = true;
  split_store(dir / "store", wanted);
}

TEST_F(SplitTest, DocumentsKeepTheLinesThatTheyWereMadeFrom) {
  build_ids(300);
  SplitOptions wanted = split("named");
  wanted.share = 0.3;
  split_store(dir / "store", wanted);
  const TokenStore whole(dir / "store");
  std::set<int64_t> lines;
  for (const fs::path& path : {wanted.out_train, wanted.out_validation}) {
    const TokenStore side(path);
    for (int64_t d = 0; d < side.info().documents; ++d) {
      const TokenStore::Name name = side.name_of(d);
      EXPECT_TRUE(lines.insert(name.record).second) << name.record;
      const std::vector<int64_t> same = whole.documents_named(name);
      ASSERT_EQ(same.size(), 1U) << name.record;
      std::vector<int32_t> ids(
          static_cast<size_t>(side.document_end(d) - side.document_begin(d)));
      std::vector<int32_t> then = ids;
      side.read(side.document_begin(d), ids);
      whole.read(whole.document_begin(same[0]), then);
      EXPECT_EQ(ids, then) << name.record;
    }
  }
  EXPECT_EQ(std::ssize(lines), whole.info().documents);
}

}  // namespace
}  // namespace longhaul::data
