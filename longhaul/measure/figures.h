#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/config/hardware_profile.h"

namespace longhaul::measure {

/// One thing that a machine does at some rate.
struct Probe {
  std::string name;           ///< "product bf16 2048x1024x4096"
  std::string unit;           ///< of its work: "FLOP", "B", "token"
  double work = 0.0;          ///< units of one run
  std::function<void()> run;  ///< returns when its work is done
  /// Runs in a round; 0: as many as its time wants. Ranks that meet in a run have the
  /// same.
  int runs = 0;
};

struct Rounds {
  int count = 7;
  double seconds_each = 0.05;  ///< a probe repeats its run at least so long
  std::function<void(size_t done, size_t total)> progress = {};
};

/// Every probe in turn, round by round, so that what slows the machine for a while slows
/// all of them alike; one round before the first does not count.
std::vector<MeasuredRate> measure(const std::vector<Probe>& probes, const Rounds& rounds);

}  // namespace longhaul::measure
