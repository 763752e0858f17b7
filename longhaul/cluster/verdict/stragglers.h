#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/cluster/watch/observed.h"

namespace longhaul::cluster {

/// A rank that is slower than other ranks with the same work.
struct Straggler {
  int rank = 0;
  std::string node;
  double seconds = 0.0;  ///< busy seconds of a step, median of the last steps
  double ratio = 0.0;    ///< to the median over the ranks of its pipeline stage
  std::string text;      ///< for people
};

/// Finds ranks that work longer for a step than other ranks with the same work. Reports a
/// rank again only after the rank had been well, or when its ratio has doubled.
class Stragglers {
 public:
  explicit Stragglers(double ratio) : ratio_(ratio) {}
  /// Returns the ranks to report now. Looks at most once in two seconds; a rank counts
  /// when it was slow at three looks in a row.
  std::vector<Straggler> look(const RankList& ranks, double now);
  void restart();

 private:
  struct Known {
    int looks = 0;
    double told = 0.0;  ///< the ratio that was reported last
  };
  double ratio_;
  double looked_ = 0.0;
  std::map<int, Known> known_;
};

}  // namespace longhaul::cluster
