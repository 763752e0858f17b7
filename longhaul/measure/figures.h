#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/config/hardware_profile.h"

namespace longhaul::measure {

/// One kind of work that a machine does at some rate.
struct Probe {
  std::string name;           ///< "product bf16 2048x1024x4096"
  std::string unit;           ///< unit of the work: "FLOP", "B", "token"
  double work = 0.0;          ///< units of work of one run
  std::function<void()> run;  ///< returns when the work is done
  /// The number of runs in a round; 0: as many runs as fit into the round's time. Ranks
  /// that communicate in a run must have the same number.
  int runs = 0;
};

/// How often and how long probes are measured.
struct Rounds {
  int count = 7;
  double seconds_each = 0.05;  ///< the least time of a probe in a round
  std::function<void(size_t done, size_t total)> progress = {};
};

/// Measures every probe in turn, round by round, so that a disturbance of the machine
/// slows all probes alike. The first round is not counted.
std::vector<MeasuredRate> measure(const std::vector<Probe>& probes, const Rounds& rounds);

}  // namespace longhaul::measure
