#include "longhaul/plan/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "longhaul/families/decoder.h"
#include "longhaul/families/model_config.h"
#include "tests/support/settings.h"

namespace longhaul::plan {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// What is counted of a layout.
struct Exact {
  double seconds = 0.0;
  double bytes = 0.0;
};

/// A small run on a small machine, drawn by chance.
struct Problem {
  RunConfig config;
  ModelDescription model;
  Machine machine;
  HardwareProfile profile;
  int64_t ranks = 1;
  std::string frozen = {};  ///< parameters with this text in their names; empty: none
  std::vector<BoundedLayout> times = {};  ///< bounds, by layout
  std::vector<BoundedLayout> sizes = {};
  int64_t refused = 0;  ///< layouts that break a rule
  std::map<LayoutSettings, Exact> counted = {};
  layout::ModelLimits limits() const { return layout::ModelLimits(model); }
  SearchedRun run(double room) const {
    const auto is_frozen = [text = frozen](const std::string& name) {
      return !text.empty() && name.find(text) != std::string::npos;
    };
    return {config, model, machine, profile, ranks, is_frozen, room};
  }
};

class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}
  template <class T>
  T of(std::vector<T> values) {
    return values[engine_() % values.size()];
  }

 private:
  std::mt19937_64 engine_;
};

ModelDescription drawn_model(Chance& chance, int64_t layers) {
  if (chance.of<int>({0, 1, 2, 3}) == 0) {
    const std::vector<ModelOverride> overrides = {
        {"num_hidden_layers", fmt::format("{}", layers)},
        {"num_local_experts", "4"},
        {"intermediate_size", "512"},
        {"hidden_size", "256"},
        {"num_attention_heads", "4"},
        {"num_key_value_heads", "2"}};
    return load_model_config(source_dir() / "tests/fixtures/configs/mixtral-8x7b.json",
                             overrides)
        .description;
  }
  DecoderSettings s;
  s.hidden_size = chance.of<int64_t>({64, 192, 320});
  s.intermediate_size = chance.of<int64_t>({100, 512, 1000});
  s.num_hidden_layers = layers;
  s.num_attention_heads = 4;
  s.num_key_value_heads = chance.of<int64_t>({1, 2, 4});
  s.head_dim = 16;
  s.rms_norm_eps = 1e-5;
  s.tie_word_embeddings = chance.of<int>({0, 1}) == 1;
  return make_llama(s, chance.of<int64_t>({300, 1000, 5003}), 4096).description;
}

Problem drawn(uint64_t seed) {
  Chance chance(seed);
  Problem p;
  p.ranks = chance.of<int64_t>({1, 2, 2, 3, 4, 4});
  p.model = drawn_model(chance, chance.of<int64_t>({2, 3, 5}));
  std::vector<std::string> sets = {
      fmt::format("batch.global_size={}", p.ranks * chance.of<int64_t>({1, 2, 3})),
      fmt::format("data.seq_len={}", chance.of<int64_t>({64, 96, 512})),
      fmt::format("parallel.sequence={}", chance.of<int>({0, 1}) == 1),
      fmt::format("parallel.context={}", chance.of<std::string>({"ring", "gather"})),
      fmt::format("precision.compute={}", chance.of<std::string>({"bf16", "fp32"})),
      fmt::format("precision.moments={}", chance.of<std::string>({"bf16", "fp32"})),
      fmt::format("precision.reduce={}", chance.of<std::string>({"bf16", "fp32"})),
      fmt::format("run.fused={}", chance.of<int>({0, 1, 1}) == 1),
      fmt::format("memory.gathered_gb={}", chance.of<double>({0.0, 0.0, 1.0}))};
  p.config = accepted("", sets).config;
  p.machine.products = chance.of<double>({1e10, 1e12});
  p.machine.attention = chance.of<double>({1e10, 1e11});
  p.machine.memory = chance.of<double>({1e9, 1e11});
  p.machine.node_ranks = chance.of<int64_t>({1, 2, 3, 8});
  p.machine.inside = {chance.of<double>({1e9, 1e11}), chance.of<double>({0.0, 1e-5})};
  p.machine.between = {chance.of<double>({1e8, 1e10}), chance.of<double>({0.0, 1e-4})};
  p.profile.device = chance.of<std::string>({"cpu", "some GPU"});
  p.profile.node.context_bytes = 1e6;
  // With "proj" and "weight" few matrices, or no parameters, are trained.
  p.frozen = chance.of<std::string>({"", "", "layers.0.", "mlp", "proj", "weight"});
  if (chance.of<int>({0, 1, 2}) == 0) {
    const LinkProfile link = {chance.of<double>({1e7, 1e12}), 1e-5};
    for (const char* operation : {"all_reduce", "reduce_scatter", "expert rows"}) {
      p.machine.exchanges.push_back({"measured", operation, 2, 2, link});
    }
  }
  if (chance.of<int>({0, 1}) == 0) p.machine.grouped_rates = {{8, 1e9}, {256, 1e12}};
  return p;
}

/// Counts every layout of a problem, in loops of their own, and adds its bounds.
void count_all(Problem& p) {
  const SearchedRun run = p.run(kInfinite);
  LayoutBounds bounds(run);
  const auto visit = [&](const LayoutSettings& settings, const LayoutBound& bound) {
    if (bound.broken) {
      ++p.refused;
      return;
    }
    p.times.push_back({settings, bound.all_seconds()});
    p.sizes.push_back({settings, bound.all_bytes()});
  };
  for (const LayoutSettings& mesh : meshes_of(p.ranks)) bounds.go_through(mesh, visit);
  const layout::ModelLimits limits = p.limits();
  RunConfig config = p.config;
  const auto add = [&](const LayoutSettings& s) {
    set_layout(config, s, p.ranks);
    if (!layout::broken_without_ranks(config, limits).empty()) return;
    const LayoutCount count = count_layout(run, limits, s, config);
    if (count.broken) return;
    p.counted[s] = {count.layout.step.seconds, count.layout.fullest.all()};
  };
  const auto ranks = static_cast<int32_t>(p.ranks);
  const auto sequences = static_cast<int32_t>(p.config.batch.global_size);
  LayoutSettings s;
  for (s.tp = 1; s.tp <= ranks; ++s.tp) {
    for (s.pp = 1; s.pp * s.tp <= ranks; ++s.pp) {
      for (s.cp = 1; s.cp * s.pp * s.tp <= ranks; ++s.cp) {
        if (ranks % (s.cp * s.pp * s.tp) != 0) continue;
        const int32_t data = s.data_ranks(ranks);
        for (s.ep = 1; s.ep <= data; ++s.ep) {
          for (s.micro_size = 1; s.micro_size <= sequences; ++s.micro_size) {
            if (sequences % s.micro_size != 0) continue;
            for (const int recompute : {0, 1, 2}) {
              s.recompute = static_cast<RecomputeKind>(recompute);
              for (const int kind : {0, 1, 2, 3}) {
                s.pipeline = static_cast<PipelineKind>(kind);
                if (s.pp == 1 && s.pipeline != PipelineKind::OneFOneB) continue;
                const bool several = s.pipeline == PipelineKind::Interleaved;
                const int32_t most = several ? 5 : 1;
                for (s.virtual_stages = 1; s.virtual_stages <= most; ++s.virtual_stages) {
                  for (s.shards = 1; s.shards <= data; ++s.shards) {
                    for (s.zero = 0; s.zero <= 3; ++s.zero) {
                      if ((s.zero == 0) == (s.shards == 1)) add(s);
                    }
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all = [] {
    std::vector<Problem> drawn_ones;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      drawn_ones.push_back(drawn(seed));
      count_all(drawn_ones.back());
    }
    return drawn_ones;
  }();
  return all;
}

/// Returns the shortest step of those that fit; infinite if none does.
double best_of_all(const Problem& p, double room) {
  double best = kInfinite;
  for (const auto& [settings, one] : p.counted) {
    if (one.bytes <= room) best = std::min(best, one.seconds);
  }
  return best;
}

/// Returns a room in which about half of the layouts fit.
double middle_room(const Problem& p) {
  std::vector<double> sizes;
  for (const auto& [settings, one] : p.counted) sizes.push_back(one.bytes);
  std::ranges::sort(sizes);
  return sizes[sizes.size() / 2];
}

TEST(LayoutBounds, VisitEveryLayoutThatBreaksNoRule) {
  for (const Problem& p : problems()) {
    ASSERT_GT(p.counted.size(), 0U);
    for (const BoundedLayout& one : p.times) {
      ASSERT_TRUE(p.counted.contains(one.settings)) << to_string(one.settings, p.ranks);
    }
    EXPECT_EQ(p.times.size(), p.counted.size());
  }
}

TEST(LayoutBounds, AreNotAboveWhatIsCounted) {
  double nearness = 0.0, layouts = 0.0;
  for (const Problem& p : problems()) {
    for (size_t i = 0; i < p.times.size(); ++i) {
      const LayoutSettings& settings = p.times[i].settings;
      const Exact& one = p.counted.at(settings);
      ASSERT_LE(p.times[i].bound, one.seconds) << to_string(settings, p.ranks);
      ASSERT_LE(p.sizes[i].bound, one.bytes) << to_string(settings, p.ranks);
      nearness += p.times[i].bound / one.seconds;
      layouts += 1.0;
    }
  }
  // Bounds that are far below would have everything counted.
  EXPECT_GT(nearness / layouts, 0.5);
}

TEST(Search, FindsWhatAnExhaustiveCountFinds) {
  for (const Problem& p : problems()) {
    const double room = middle_room(p);
    const SearchResult found = search_layouts(p.run(room), 3);
    ASSERT_FALSE(found.best.empty());
    EXPECT_EQ(found.best.front().step.seconds, best_of_all(p, room));
    int64_t losers = 0;
    for (const Losers& one : found.losers) losers += one.layouts;
    EXPECT_EQ(losers + std::ssize(found.best), found.layouts);
    EXPECT_EQ(found.layouts, std::ssize(p.times) + p.refused);
    for (const CountedLayout& one : found.best) EXPECT_LE(one.fullest.all(), room);
  }
}

/// Adds a layout that loses, by so much, to the losers for this reason.
void lose(std::map<Losers::Reason, std::pair<int64_t, double>>& losers,
          Losers::Reason reason, int64_t layouts, double by) {
  auto& [number, least] = losers.try_emplace(reason, 0, kInfinite).first->second;
  number += layouts;
  least = std::min(least, by);
}

TEST(Search, GivesEachLoserTheReasonThatItsNumbersGive) {
  for (const Problem& p : problems()) {
    const double room = middle_room(p);
    const SearchResult found = search_layouts(p.run(room), 3);
    std::set<LayoutSettings> exact;  // the best, and the losers that were counted
    for (const CountedLayout& one : found.best) exact.insert(one.settings);
    std::map<Losers::Reason, std::pair<int64_t, double>> told, expected;
    for (const Losers& one : found.losers) {
      lose(told, one.reason, one.layouts, one.lacks + one.slower);
    }
    if (p.refused > 0) lose(expected, Losers::Reason::Rule, p.refused, 0.0);
    for (const Losers& one : found.counted) {
      exact.insert(one.example);
      lose(expected, one.reason, 1, one.lacks + one.slower);
    }
    const double best = found.best.front().step.seconds;
    for (size_t i = 0; i < p.times.size(); ++i) {
      if (exact.contains(p.times[i].settings)) continue;
      const double lacks = p.sizes[i].bound - room;
      if (lacks > 0.0) {
        lose(expected, Losers::Reason::Memory, 1, lacks);
      } else {
        lose(expected, Losers::Reason::Time, 1, p.times[i].bound / best - 1.0);
      }
    }
    EXPECT_EQ(told, expected);
  }
}

TEST(Search, MissesTheBestWithAWrongBound) {
  int missed = 0;
  for (const Problem& p : problems()) {
    const double best = best_of_all(p, kInfinite);
    const auto time = [&](const LayoutSettings& settings) {
      return std::optional<double>(p.counted.at(settings).seconds);
    };
    EXPECT_EQ(find_best(pointers_to(p.times), 1, time).front().bound, best);
    // The planted bound doubles what the best layouts take.
    std::vector<BoundedLayout> wrong = p.times;
    for (BoundedLayout& one : wrong) {
      if (p.counted.at(one.settings).seconds == best) one.bound *= 2.0;
    }
    if (find_best(pointers_to(wrong), 1, time).front().bound > best) ++missed;
  }
  EXPECT_GT(missed, 50);
}

/// Returns the shortest step of the layouts that agree with `like` in what is kept.
double best_kept(const Problem& p, const KeptSettings& kept) {
  double best = kInfinite;
  for (const auto& [s, one] : p.counted) {
    const int32_t data = s.data_ranks(p.ranks);
    // With one rank of dp x cp every ZeRO is the same.
    const bool alone = data == 1 && !kept.shard_group;
    const bool zero = allows(kept.zero, s.zero) || alone;
    const bool shards =
        !kept.shard_group || s.zero == 0 || kept.shard_group->ranks == s.shards;
    if (allows(kept.tp, s.tp) && allows(kept.pp, s.pp) && allows(kept.cp, s.cp) &&
        allows(kept.ep, s.ep) && allows(kept.micro_size, s.micro_size) &&
        allows(kept.pipeline, s.pipeline) &&
        allows(kept.virtual_stages, s.virtual_stages) &&
        allows(kept.recompute, s.recompute) && zero && shards) {
      best = std::min(best, one.seconds);
    }
  }
  return best;
}

TEST(Search, VariesOnlyWhatIsNotKept) {
  for (const Problem& p : problems()) {
    const auto middle = std::next(p.counted.begin(), std::ssize(p.counted) / 2);
    const LayoutSettings& like = middle->first;
    KeptSettings mesh, passes, state, level;
    mesh.tp = like.tp;
    mesh.pp = like.pp;
    mesh.cp = like.cp;
    mesh.ep = like.ep;
    passes.pp = like.pp;
    passes.micro_size = like.micro_size;
    passes.pipeline = like.pipeline;
    passes.virtual_stages = like.virtual_stages;
    passes.recompute = like.recompute;
    state.tp = like.tp;
    state.zero = like.zero;
    if (like.zero > 0) state.shard_group = {ShardGroup::Kind::Ranks, like.shards};
    level.zero = like.zero;
    for (const KeptSettings& kept : {mesh, passes, state, level}) {
      SearchedRun run = p.run(kInfinite);
      run.kept = kept;
      const SearchResult found = search_layouts(run, 1);
      ASSERT_FALSE(found.best.empty()) << to_string(like, p.ranks);
      EXPECT_DOUBLE_EQ(found.best.front().step.seconds, best_kept(p, kept))
          << to_string(like, p.ranks);
    }
  }
}

TEST(Search, KeepsTheZeroThatIsGivenOnOneRank) {
  Problem p = drawn(1);
  p.ranks = 1;
  SearchedRun run = p.run(kInfinite);
  run.kept.zero = 1;
  const SearchResult found = search_layouts(run, 1);
  ASSERT_FALSE(found.best.empty());
  EXPECT_EQ(found.best.front().settings.zero, 1);
  EXPECT_EQ(found.best.front().settings.shards, 1);
}

TEST(LayoutSettings, AreKeptByAutoWhereTheyAreGiven) {
  EXPECT_FALSE(kept_settings(accepted("", {"parallel.tp=2"}).config).tp);
  const KeptSettings kept =
      kept_settings(accepted("", {"parallel.auto=true", "parallel.tp=2",
                                  "parallel.shard_group=node", "memory.recompute=none"})
                        .config);
  EXPECT_EQ(kept.tp, 2);
  EXPECT_EQ(kept.shard_group, (ShardGroup{ShardGroup::Kind::Node, 0}));
  EXPECT_EQ(kept.recompute, RecomputeKind::None);
  EXPECT_FALSE(kept.pp || kept.cp || kept.ep || kept.micro_size || kept.virtual_stages ||
               kept.zero || kept.pipeline);
}

TEST(Search, TellsWhatTheNearestLacks) {
  const Problem& p = problems().front();
  double least = kInfinite;
  for (const auto& [settings, one] : p.counted) {
    least = std::min(least, one.bytes);
  }
  const SearchResult found = search_layouts(p.run(least / 2.0), 3);
  EXPECT_TRUE(found.best.empty());
  ASSERT_TRUE(found.nearest.has_value());
  EXPECT_EQ(found.nearest->fullest.all(), least);
}

TEST(LayoutSettings, AreLinesOfARunFile) {
  LayoutSettings s = {.tp = 2, .pp = 4, .micro_size = 3, .shards = 2, .zero = 2};
  s.pipeline = PipelineKind::ZeroBubbleH1;
  s.recompute = RecomputeKind::Selective;
  std::string section;
  std::vector<std::string> sets = {"batch.global_size=12"};
  for (const std::string& line : toml_lines(s, 32)) {
    if (line.starts_with('[')) {
      section = line.substr(1, line.size() - 2);
    } else {
      const size_t middle = line.find(" = ");
      sets.push_back(section + "." + line.substr(0, middle) + "=" +
                     line.substr(middle + 3));
    }
  }
  RunConfig config = accepted("", {"batch.global_size=12"}).config;
  set_layout(config, s, 32);
  const RunConfig read = accepted("", sets).config;
  EXPECT_EQ(read.parallel.tp, config.parallel.tp);
  EXPECT_EQ(read.parallel.pp, config.parallel.pp);
  EXPECT_EQ(read.parallel.pipeline, config.parallel.pipeline);
  EXPECT_EQ(read.parallel.zero, config.parallel.zero);
  EXPECT_EQ(read.parallel.shard_group, config.parallel.shard_group);
  EXPECT_EQ(read.batch.micro_size, config.batch.micro_size);
  EXPECT_EQ(read.memory.recompute, config.memory.recompute);
  EXPECT_EQ(to_string(s, 32),
            "tp 2, pp 4, cp 1, dp 4, micro batch 3, zb-h1, zero 2 over 2, recompute "
            "selective");
}

}  // namespace
}  // namespace longhaul::plan
