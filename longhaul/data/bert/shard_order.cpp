#include "longhaul/data/bert/shard_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

/// Fills the state of a Mersenne Twister from an integer as Python does (the generator's
/// init_by_array, with the integer's 32-bit words from the lowest up as its key).
class PythonSeed {
 public:
  using result_type = uint32_t;
  explicit PythonSeed(uint64_t seed) {
    key_.push_back(static_cast<uint32_t>(seed));
    if (seed >> 32 != 0) key_.push_back(static_cast<uint32_t>(seed >> 32));
  }

  template <typename Iterator>
  void generate(Iterator begin, Iterator end) const {
    const auto size = static_cast<size_t>(end - begin);
    std::vector<uint32_t> state(size);
    state[0] = 19650218;
    for (size_t i = 1; i < size; ++i) {
      state[i] =
          1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + static_cast<uint32_t>(i);
    }
    size_t place = 1;
    const auto advance = [&] {
      if (++place < size) return;
      state[0] = state[size - 1];
      place = 1;
    };
    const auto mixed = [&](uint32_t factor) {
      const uint32_t before = state[place - 1];
      return state[place] ^ ((before ^ (before >> 30)) * factor);
    };
    size_t word = 0;
    for (size_t k = std::max(size, key_.size()); k > 0; --k) {
      state[place] = mixed(1664525U) + key_[word] + static_cast<uint32_t>(word);
      advance();
      word = (word + 1) % key_.size();
    }
    for (size_t k = size - 1; k > 0; --k) {
      state[place] = mixed(1566083941U) - static_cast<uint32_t>(place);
      advance();
    }
    state[0] = 0x80000000U;
    std::copy(state.begin(), state.end(), begin);
  }

 private:
  std::vector<uint32_t> key_;
};

/// Python's way to a number below `end`: as many bits as `end` has, drawn again until
/// they are below it.
int64_t draw_below(std::mt19937& generator, int64_t end) {
  const int bits = std::bit_width(static_cast<uint64_t>(end));
  while (true) {
    const auto value = static_cast<int64_t>(generator() >> (32 - bits));
    if (value < end) return value;
  }
}

}  // namespace

std::vector<int64_t> python_shuffled(int64_t count, uint64_t seed) {
  LH_CHECK(count >= 0 && count <= INT32_MAX, "data", "shuffle of {} files", count);
  PythonSeed python(seed);
  std::mt19937 generator(python);
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = count - 1; i > 0; --i) {
    std::swap(order[static_cast<size_t>(i)],
              order[static_cast<size_t>(draw_below(generator, i + 1))]);
  }
  return order;
}

ShardOrder::ShardOrder(std::vector<fs::path> files, int64_t epoch, int64_t group,
                       int64_t num_groups)
    : group_(group), num_groups_(num_groups) {
  LH_CHECK(epoch >= 0 && group >= 0 && group < num_groups, "data",
           "epoch {}, group {} of {}", epoch, group, num_groups);
  if (num_groups > static_cast<int64_t>(files.size())) {
    throw ConfigError("data",
                      fmt::format("{} data-parallel groups want a shard each, there are "
                                  "{} shards; build the data with --shards {} or more",
                                  num_groups, files.size(), num_groups));
  }
  const std::vector<int64_t> order =
      python_shuffled(static_cast<int64_t>(files.size()), static_cast<uint64_t>(epoch));
  files_.reserve(files.size());
  for (const int64_t index : order) {
    files_.push_back(std::move(files[static_cast<size_t>(index)]));
  }
}

size_t ShardOrder::place(int64_t number) const {
  LH_CHECK(number >= 0, "data", "file number {}", number);
  // Modulo first: a large number would overflow.
  const int64_t count = num_files();
  return static_cast<size_t>((number % count * (num_groups_ % count) + group_) % count);
}

}  // namespace longhaul::data
