#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::data {

/// The numbers 0 to count - 1 in the order in which Python's random.Random(seed).shuffle
/// leaves a list of them (Python 3.2 and later; the Mersenne Twister seeded by the
/// integer).
std::vector<int64_t> python_shuffled(int64_t count, uint64_t seed);

/// Which shard a data-parallel group reads when: the rule of the source system's BERT
/// loader. The files, sorted, are shuffled with Python's generator seeded by the epoch;
/// the group's file number f of the epoch is element (f * num_groups + group) modulo the
/// number of files. Immutable.
class ShardOrder {
 public:
  /// `files` are sorted. ConfigError when there are more groups than files.
  ShardOrder(std::vector<fs::path> files, int64_t epoch, int64_t group,
             int64_t num_groups);

  int64_t num_files() const { return static_cast<int64_t>(files_.size()); }
  /// The group's file number `number` of this epoch, number >= 0.
  const fs::path& file(int64_t number) const { return files_[place(number)]; }
  /// Place of that file in the epoch's shuffled list.
  size_t place(int64_t number) const;

 private:
  std::vector<fs::path> files_;  // shuffled
  int64_t group_;
  int64_t num_groups_;
};

}  // namespace longhaul::data
