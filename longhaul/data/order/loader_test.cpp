#include "longhaul/data/order/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {
namespace {

/// A source whose tokens identify source and sequence: sequence i is (tag, i, i, ...).
class TaggedSource : public TokenSource {
 public:
  TaggedSource(int32_t tag, int64_t sequences, int64_t length)
      : tag_(tag), sequences_(sequences), length_(length) {}
  int64_t num_sequences() const override { return sequences_; }
  int64_t seq_len() const override { return length_; }
  int64_t max_token_id() const override { return 100000; }
  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    const BatchRow to = batch_row(*this, index, batch, row);
    std::fill(to.tokens.begin(), to.tokens.end(), static_cast<int32_t>(index));
    std::fill(to.targets.begin(), to.targets.end(), static_cast<int32_t>(index));
    to.tokens[0] = tag_;
    to.targets.back() = kIgnore;
    fill_plain_positions(to);
  }
  std::string describe() const override { return fmt::format("tagged {}", tag_); }
  std::string fingerprint() const override { return fmt::format("tag {}", tag_); }

 private:
  int32_t tag_;
  int64_t sequences_;
  int64_t length_;
};

std::vector<WeightedSource> tagged(const std::vector<std::pair<int64_t, double>>& sources,
                                   int64_t length = 4) {
  std::vector<WeightedSource> result;
  int32_t tag = 0;
  for (const auto& [sequences, weight] : sources) {
    const std::string name = "tagged " + std::to_string(tag);
    result.push_back(
        {std::make_shared<TaggedSource>(tag++, sequences, length), weight, name, {}});
  }
  return result;
}

using Seen = std::pair<int32_t, int32_t>;  // tag and index

/// Returns what `ranks` ranks see in each of the next steps, in the order of the step.
std::vector<std::vector<Seen>> walk(const std::vector<WeightedSource>& sources,
                                    LoaderOptions options, int64_t steps, int64_t ranks,
                                    Cursor* cursor = nullptr,
                                    std::vector<uint64_t>* chain = nullptr) {
  std::vector<std::vector<Seen>> seen(
      static_cast<size_t>(steps),
      std::vector<Seen>(static_cast<size_t>(options.global_size)));
  std::vector<uint64_t> contents(static_cast<size_t>(steps), 0);
  Cursor end;
  for (int64_t d = 0; d < ranks; ++d) {
    options.data_rank = d;
    options.data_size = ranks;
    Loader loader(sources, options, cursor == nullptr ? Cursor{} : *cursor);
    for (size_t k = 0; k < static_cast<size_t>(steps); ++k) {
      const StepBatch& step = loader.next();
      contents[k] += static_cast<uint64_t>(step.content_hash);
      EXPECT_EQ(static_cast<int64_t>(step.micro_batches.size()), loader.micro_batches());
      for (size_t m = 0; m < step.micro_batches.size(); ++m) {
        const TokenBatch& batch = step.micro_batches[m];
        for (int64_t j = 0; j < options.micro_size; ++j) {
          const int64_t place =
              (static_cast<int64_t>(m) * ranks + d) * options.micro_size + j;
          const auto at = static_cast<size_t>(j * batch.seq_len);
          seen[k][static_cast<size_t>(place)] = {batch.tokens[at], batch.tokens[at + 1]};
        }
      }
    }
    end = loader.cursor();
  }
  if (cursor != nullptr) *cursor = end;
  if (chain != nullptr) {
    uint64_t hash = 0;
    for (const uint64_t content : contents) {
      hash = chain_hash(hash, static_cast<int64_t>(content));
      chain->push_back(hash);
    }
  }
  return seen;
}

LoaderOptions options_of(int64_t global_size, int64_t micro_size, bool shuffle = true) {
  LoaderOptions options;
  options.seed = 11;
  options.shuffle = shuffle;
  options.global_size = global_size;
  options.micro_size = micro_size;
  return options;
}

TEST(Loader, SplitsTheSameStepsOverAnyNumberOfRanksAndMicroBatches) {
  const auto sources = tagged({{50, 0.7}, {31, 0.3}});
  std::vector<uint64_t> chain_one;
  const auto one = walk(sources, options_of(8, 8), 30, 1, nullptr, &chain_one);
  for (const int64_t ranks : {1, 2, 4}) {
    for (const int64_t micro : {1, 2}) {
      std::vector<uint64_t> chain;
      EXPECT_EQ(walk(sources, options_of(8, micro), 30, ranks, nullptr, &chain), one);
      EXPECT_EQ(chain, chain_one);
    }
  }
}

TEST(Loader, ReadsALaterStepAloneFromTheCursorBeforeIt) {
  const auto sources = tagged({{50, 0.7}, {31, 0.3}});
  LoaderOptions options = options_of(8, 2);
  options.changes = {{5, {0.2, 0.8}}, {9, {0.2, 0.8}}, {12, {1.0, 0.0}}};
  options.last_step = 20;
  const auto all = walk(sources, options, 20, 2);
  Cursor begun;
  walk(sources, options, 3, 2, &begun);
  for (const size_t step : {4, 5, 6, 9, 12, 20}) {
    for (const int64_t from : {1, 4}) {
      options.first_step = from;
      Cursor at = cursor_before(sources, options, from == 1 ? Cursor{} : begun,
                                static_cast<int64_t>(step));
      options.first_step = static_cast<int64_t>(step);
      EXPECT_EQ(walk(sources, options, 1, 2, &at)[0], all[step - 1])
          << "step " << step << " from " << from;
    }
  }
}

TEST(Loader, ShowsEverySequenceOnceInEachEpochAndInANewOrder) {
  const auto steps = walk(tagged({{24, 1.0}}), options_of(8, 2), 6, 2);
  std::vector<std::vector<Seen>> epochs(2);
  for (size_t k = 0; k < 6; ++k) {
    epochs[k / 3].insert(epochs[k / 3].end(), steps[k].begin(), steps[k].end());
  }
  for (const auto& epoch : epochs) {
    EXPECT_EQ(std::set<Seen>(epoch.begin(), epoch.end()).size(), 24U);
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(Loader, KeepsTheOrderOfTheFilesWithoutShuffling) {
  const auto steps = walk(tagged({{6, 1.0}}), options_of(4, 2, false), 3, 1);
  std::vector<int32_t> order;
  for (const auto& step : steps) {
    for (const Seen& seen : step) order.push_back(seen.second);
  }
  EXPECT_EQ(order, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
}

TEST(Loader, GoesOnFromACursorAsIfNeverStopped) {
  const auto sources = tagged({{50, 0.6}, {31, 0.4}});
  const auto whole = walk(sources, options_of(8, 2), 20, 1);
  Cursor cursor;
  auto parts = walk(sources, options_of(8, 2), 7, 2, &cursor);
  cursor = Cursor::from_json(parse_json(cursor.to_json().dump(), "cursor"));
  EXPECT_EQ(cursor.sequences(), 56);
  EXPECT_EQ(cursor.tokens(), 56 * 4);
  const auto rest = walk(sources, options_of(8, 4), 13, 2, &cursor);
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(cursor.phases.size(), 1U);
}

TEST(Loader, KeepsTheStreamWhenTheBatchSizeChanges) {
  const auto sources = tagged({{50, 1.0}});
  const auto flat = [](const std::vector<std::vector<Seen>>& steps) {
    std::vector<Seen> all;
    for (const auto& step : steps) all.insert(all.end(), step.begin(), step.end());
    return all;
  };
  const auto whole = flat(walk(sources, options_of(4, 4), 9, 1));
  Cursor cursor;
  auto parts = flat(walk(sources, options_of(4, 4), 3, 1, &cursor));
  const auto rest = flat(walk(sources, options_of(12, 4), 2, 1, &cursor));
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(parts, whole);
}

TEST(Loader, BeginsAPhaseForAnotherMixtureWithoutRepeatingWhatWasSeen) {
  Cursor cursor;
  const auto first =
      walk(tagged({{40, 1.0}, {40, 1.0}}), options_of(8, 8), 5, 1, &cursor);
  const auto second =
      walk(tagged({{40, 1.0}, {40, 3.0}}), options_of(8, 8), 3, 1, &cursor);
  EXPECT_EQ(cursor.phases.size(), 2U);
  EXPECT_EQ(cursor.sequences(), 64);
  std::map<Seen, int> count;
  for (const auto& step : first)
    for (const Seen& seen : step) ++count[seen];
  for (const auto& step : second)
    for (const Seen& seen : step) ++count[seen];
  for (const auto& [seen, times] : count) EXPECT_EQ(times, 1) << seen.first;
}

/// Returns options that change the weights of two sources at steps 6 and 11. The second
/// source is unused at first.
LoaderOptions changing() {
  LoaderOptions options = options_of(8, 2);
  options.changes = {{6, {1.0, 3.0}}, {11, {0.0, 1.0}}};
  return options;
}

TEST(Loader, ChangesWeightsAtTheStepsThatSaySo) {
  const auto steps = walk(tagged({{400, 1.0}, {400, 0.0}}), changing(), 15, 1);
  const auto of_second = [&](size_t begin, size_t end) {
    int64_t count = 0;
    for (size_t k = begin; k < end; ++k) {
      count +=
          std::ranges::count_if(steps[k], [](const Seen& s) { return s.first == 1; });
    }
    return count;
  };
  EXPECT_EQ(of_second(0, 5), 0);
  EXPECT_EQ(of_second(5, 10), 30);
  EXPECT_EQ(of_second(10, 15), 40);
  std::map<Seen, int> count;
  for (const auto& step : steps)
    for (const Seen& seen : step) ++count[seen];
  EXPECT_EQ(count.size(), 15U * 8U) << "something came twice";
}

TEST(Loader, GoesOnOverChangesOfWeightsAsIfNeverStopped) {
  const auto sources = tagged({{50, 1.0}, {31, 0.0}});
  std::vector<uint64_t> chain;
  const auto whole = walk(sources, changing(), 15, 2, nullptr, &chain);
  for (const int64_t stop : {4, 5, 6, 10, 12}) {
    Cursor cursor;
    LoaderOptions options = changing();
    auto parts = walk(sources, options, stop, 2, &cursor);
    cursor = Cursor::from_json(parse_json(cursor.to_json().dump(), "cursor"));
    options.first_step = stop + 1;
    const auto rest = walk(sources, options, 15 - stop, 1, &cursor);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole) << stop;
    EXPECT_EQ(cursor.phases.size(), 3U);
  }
}

TEST(Loader, CountsWhatEachSourceGave) {
  auto sources = tagged({{50, 1.0}, {31, 0.0}});
  Cursor cursor;
  const auto steps = walk(sources, changing(), 12, 1, &cursor);
  std::vector<int64_t> seen(2, 0);
  for (const auto& step : steps)
    for (const Seen& s : step) ++seen[static_cast<size_t>(s.first)];
  std::vector<SourceCount> counts = source_counts(cursor);
  ASSERT_EQ(counts.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(counts[i].name, "tagged " + std::to_string(i));
    EXPECT_EQ(counts[i].sequences, seen[i]);
    EXPECT_EQ(counts[i].tokens, seen[i] * 4);
  }
  // A source that was removed keeps its count. Skipped sequences are not counted.
  sources.pop_back();
  cursor.phases.back().skipped = {{16, 20}};
  LoaderOptions options = options_of(8, 8);
  Loader loader(sources, options, cursor);
  loader.next();
  counts = loader.source_counts();
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0].sequences + counts[1].sequences, 13 * 8);
  EXPECT_EQ(counts, source_counts(loader.cursor()));
  EXPECT_EQ(counts[1].name, "tagged 1");
}

TEST(Loader, RefusesToReadASourceMoreOftenThanItsCap) {
  auto sources = tagged({{400, 1.0}, {30, 1.0}});
  sources[1].max_epochs = 2.0;
  LoaderOptions options = options_of(8, 8);
  options.last_step = 15;  // 60 sequences of the second source: exactly two passes
  Loader fits(sources, options);
  ASSERT_EQ(fits.plan().size(), 2U);
  EXPECT_DOUBLE_EQ(fits.plan()[1].epochs, 2.0);
  EXPECT_DOUBLE_EQ(fits.plan()[1].share, 0.5);
  options.last_step = 40;
  try {
    const Loader refused(sources, options);
    FAIL();
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("tagged 1: max_epochs = 2 is used up at step 16 of 40"),
              std::string::npos)
        << what;
    EXPECT_NE(what.find("would be read 5.333 times"), std::string::npos) << what;
  }
  options.changes = {{16, {1.0, 0.0}}};
  const Loader stops_in_time(sources, options);
  EXPECT_DOUBLE_EQ(stops_in_time.plan()[1].epochs, 2.0);
}

TEST(Loader, StartsFarOutAtOnce) {
  Cursor cursor;
  const auto sources = tagged({{1'000'003, 0.6}, {77'777, 0.4}});
  walk(sources, options_of(8, 8), 1, 1, &cursor);
  cursor.phases[0].consumed = int64_t{1} << 58;
  LoaderOptions options = options_of(8, 8);
  options.prefetch = false;
  Loader loader(sources, options, cursor);
  EXPECT_EQ(loader.next().first_sequence, int64_t{1} << 58);
}

TEST(Loader, StartsTheNextEpochAtAnotherLength) {
  Cursor cursor;
  walk(tagged({{40, 1.0}}, 4), options_of(8, 8), 7, 1, &cursor);  // 1.4 epochs
  const Loader loader(tagged({{20, 1.0}}, 8), options_of(8, 8), cursor);
  EXPECT_FALSE(loader.phase_changes().empty());
  PhaseStream stream(loader.cursor().phases);
  std::set<int64_t> pass;
  for (int64_t n = 0; n < 20; ++n) pass.insert(stream.place(n).index);
  EXPECT_EQ(pass.size(), 20U);
}

TEST(Loader, CountsPassesByTheShareOfAPassOverChangesOfLengthAndBatch) {
  Cursor cursor;
  auto sources = tagged({{20, 1.0}}, 8);
  walk(tagged({{40, 1.0}}, 4), options_of(8, 8), 11, 1, &cursor);  // 2.2 passes
  LoaderOptions options = options_of(4, 4);
  options.first_step = 12;
  options.last_step = 15;
  const Loader loader(sources, options, cursor);
  EXPECT_DOUBLE_EQ(loader.epoch(), 2.2);
  EXPECT_DOUBLE_EQ(loader.plan()[0].epochs, 3.0);
  EXPECT_EQ(loader.cursor().sequences_of(20), 44.0);
  EXPECT_EQ(loader.cursor().sequences_of(40), 88.0);
  sources[0].max_epochs = 3.0;
  EXPECT_NO_THROW(Loader(sources, options, cursor));
  options.last_step = 16;
  EXPECT_THROW(Loader(sources, options, cursor), ConfigError);
}

TEST(Loader, RestartsAtACursorAsANewLoaderBegins) {
  const auto sources = tagged({{40, 1.0}});
  Loader loader(sources, options_of(8, 2));
  loader.next();
  const Cursor cursor = loader.cursor();
  const int64_t second = loader.next().content_hash;
  loader.next();
  LoaderOptions options = options_of(8, 2);
  options.first_step = 2;
  for (const bool prefetch : {true, false}) {
    options.prefetch = prefetch;
    loader.restart(options, cursor);
    EXPECT_EQ(loader.cursor(), cursor);
    EXPECT_EQ(loader.next().content_hash, second);
    EXPECT_EQ(loader.epoch(), 2 * 8 / 40.0);
  }
}

TEST(Loader, PassesOverSkippedRanges) {
  const auto sources = tagged({{100, 1.0}});
  Cursor cursor;
  walk(sources, options_of(4, 4, false), 1, 1, &cursor);
  cursor.phases[0].skipped = {{8, 12}, {14, 15}};
  const auto steps = walk(sources, options_of(4, 4, false), 3, 1, &cursor);
  std::vector<int32_t> order;
  for (const auto& step : steps) {
    for (const Seen& seen : step) order.push_back(seen.second);
  }
  EXPECT_EQ(order, (std::vector<int32_t>{4, 5, 6, 7, 12, 13, 15, 16, 17, 18, 19, 20}));
}

TEST(Loader, CountsTargetsAndEpochs) {
  Loader loader(tagged({{16, 1.0}}), options_of(8, 2));
  const StepBatch& step = loader.next();
  EXPECT_EQ(step.num_targets, std::vector<int64_t>{8 * 3});
  EXPECT_EQ(step.first_sequence, 0);
  EXPECT_DOUBLE_EQ(loader.epoch(), 0.5);
  EXPECT_EQ(loader.next().first_sequence, 8);
}

TEST(Loader, CountsPositionsWithoutPadding) {
  class Padded final : public TaggedSource {
   public:
    using TaggedSource::TaggedSource;
    void read(int64_t index, TokenBatch& batch, int64_t row) const override {
      TaggedSource::read(index, batch, row);
      set_real_length(batch, row, index == 1 ? 3 : index == 6 ? 0 : 4);
    }
  };
  const std::vector<WeightedSource> sources = {
      {std::make_shared<Padded>(0, 8, 4), 1.0, "padded", {}}};
  Loader loader(sources, options_of(4, 2, false));
  const StepBatch& step = loader.next();
  EXPECT_EQ(step.num_real, 4 + 3 + 4 + 4);
  EXPECT_EQ(step.micro_batches[0].real, (std::vector<int32_t>{1, 1, 1, 1, 1, 1, 1, 0}));
  EXPECT_TRUE(step.micro_batches[1].real.empty());
  const StepBatch& next = loader.next();
  EXPECT_EQ(next.num_real, 4 + 4 + 0 + 4);
  EXPECT_TRUE(next.micro_batches[0].real.empty());
  EXPECT_EQ(next.micro_batches[1].real, (std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(Loader, ChangesTheChainHashWhenOneTokenChanges) {
  std::vector<uint64_t> a;
  std::vector<uint64_t> b;
  walk(tagged({{16, 1.0}}), options_of(8, 2), 2, 1, nullptr, &a);
  walk({{synthetic_source(16, 4, 100, 1), 1.0, "random", {}}}, options_of(8, 2), 2, 1,
       nullptr, &b);
  EXPECT_NE(a[0], b[0]);
  EXPECT_NE(a[0], a[1]);
}

TEST(Loader, ChangesTheChainHashWhenSequencesOfAStepChangePlaces) {
  class Backwards final : public TokenSource {
   public:
    int64_t num_sequences() const override { return plain_.num_sequences(); }
    int64_t seq_len() const override { return plain_.seq_len(); }
    int64_t max_token_id() const override { return plain_.max_token_id(); }
    void read(int64_t index, TokenBatch& batch, int64_t row) const override {
      plain_.read(num_sequences() - 1 - index, batch, row);
    }
    std::string describe() const override { return "backwards"; }
    std::string fingerprint() const override { return plain_.fingerprint(); }

   private:
    TaggedSource plain_{0, 8, 4};
  };
  std::vector<uint64_t> a;
  std::vector<uint64_t> b;
  const LoaderOptions one_step = options_of(8, 2, false);
  walk(tagged({{8, 1.0}}), one_step, 1, 1, nullptr, &a);
  walk({{std::make_shared<Backwards>(), 1.0, "backwards", {}}}, one_step, 1, 1, nullptr,
       &b);
  EXPECT_NE(a, b);
}

TEST(Loader, RefusesSizesThatDoNotDivide) {
  try {
    const Loader refused(tagged({{16, 1.0}}), options_of(9, 2));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("global_size 9 is not a multiple"),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("10"), std::string::npos);
  }
}

TEST(Loader, BringsAReadersErrorToTheCaller) {
  class Broken final : public TokenSource {
   public:
    int64_t num_sequences() const override { return 4; }
    int64_t seq_len() const override { return 4; }
    int64_t max_token_id() const override { return 4; }
    void read(int64_t, TokenBatch&, int64_t) const override {
      throw InputError("data", "broken");
    }
    std::string describe() const override { return "broken"; }
    std::string fingerprint() const override { return "broken"; }
  };
  Loader loader({{std::make_shared<Broken>(), 1.0, "broken", {}}}, options_of(4, 4));
  EXPECT_THROW(loader.next(), InputError);
  EXPECT_THROW(loader.next(), InputError);
}

TEST(Cursor, RefusesDamagedText) {
  EXPECT_THROW(Cursor::from_json(Json::object()), InputError);
  EXPECT_THROW(Cursor::from_json({{"phases", {{{"seq_len", -1}}}}}), InputError);
}

TEST(SyntheticSource, IsUniformAndRepeatable) {
  const auto source = synthetic_source(100, 64, 10, 5);
  TokenBatch batch;
  batch.resize(100, 64);
  for (int64_t i = 0; i < 100; ++i) source->read(i, batch, i);
  std::vector<int> counts(10, 0);
  for (const int32_t token : batch.tokens) ++counts.at(static_cast<size_t>(token));
  for (const int count : counts) EXPECT_NEAR(count, 640, 120);
  EXPECT_EQ(batch.targets[0][0], batch.tokens[1]);
  EXPECT_EQ(batch.num_targets(0), 6400);
  TokenBatch again;
  again.resize(1, 64);
  synthetic_source(100, 64, 10, 5)->read(99, again, 0);
  EXPECT_TRUE(std::equal(again.tokens.begin(), again.tokens.end(),
                         batch.tokens.begin() + 99 * 64));
}

/// A source in pieces (files) of ten sequences each. It records the indices that the
/// loader passes to fetch_ahead().
class SourceInPieces final : public TaggedSource {
 public:
  using TaggedSource::TaggedSource;
  int64_t next_piece(int64_t index) const override {
    return std::min(num_sequences(), index / 10 * 10 + 10);
  }
  void fetch_ahead(int64_t index) const override { ahead.push_back(index); }
  mutable std::vector<int64_t> ahead;
};

TEST(Loader, FetchesTheNextPieceOfASequentialOrderUntilTheRunEnds) {
  const auto ahead = [](bool shuffle, int64_t last_step) {
    const auto source = std::make_shared<const SourceInPieces>(0, 30, 4);
    LoaderOptions options;
    options.shuffle = shuffle;
    options.global_size = 5;
    options.micro_size = 5;
    options.prefetch = false;
    options.last_step = last_step;
    Loader loader({{source, 1.0, "pieces", {}}}, options);
    EXPECT_TRUE(loader.ready(std::chrono::milliseconds(0)));
    for (int64_t step = 0; step < 7; ++step) loader.next();
    return source->ahead;
  };
  EXPECT_EQ(ahead(false, 0), (std::vector<int64_t>{10, 10, 20, 20, 0, 0, 10}));
  // After the last step no piece is fetched, since no step would read it.
  EXPECT_EQ(ahead(false, 7), (std::vector<int64_t>{10, 10, 20, 20, 0, 0}));
  EXPECT_EQ(ahead(true, 0), std::vector<int64_t>{});
}

TEST(Loader, TellsWhetherTheNextStepIsReady) {
  Loader loader(tagged({{100, 1.0}}), [] {
    LoaderOptions options;
    options.global_size = options.micro_size = 5;
    return options;
  }());
  EXPECT_TRUE(loader.ready(std::chrono::seconds(60)));
  EXPECT_EQ(loader.next().first_sequence, 0);
}

}  // namespace
}  // namespace longhaul::data
