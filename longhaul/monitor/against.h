#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/monitor/run_files.h"

namespace longhaul::monitor {

/// What a run is compared with: a loss by step and, if known, sequences per second.
struct Reference {
  std::map<int64_t, double> loss;
  std::optional<double> seqs_per_s;
};

/// Reads a run directory, or a file of golden losses. The file has one number a line
/// (steps 1, 2, ...), a step and a number a line, CSV with a head that names `step` and
/// `loss`, or JSON lines with these keys. '#' begins a comment. Throws InputError
/// that names file and line.
Reference read_reference(const fs::path& path);

/// Returns the losses of a run, without the steps that a later start or a rollback took
/// back.
Reference reference_of(const Records& records);

/// The first step that is compared by default. The golden-loss check of NxD begins with
/// the same step (docs/watching.md).
constexpr int64_t kGateStep = 450;

struct AgainstOptions {
  double rtol = 0.05;    ///< allowed difference, as a share of the reference's loss
  double points = 0.95;  ///< share of the points that must lie within
  /// The first step that is compared. Without this setting it is kGateStep, or the first
  /// common step if the two have no step in common from kGateStep on.
  std::optional<int64_t> from_step;
  std::optional<double> throughput_rtol;  ///< empty: the throughput is not judged
};

struct AgainstResult {
  bool passed = false;
  std::vector<std::string> lines;  ///< what was compared, and which steps miss
  Json json;
};

/// Compares a run with a reference. Throws InputError if nothing can be compared: no
/// common step from `from_step` on, or a throughput that the reference does not have.
AgainstResult hold_against(const Reference& run, const Reference& reference,
                           const AgainstOptions& options);

}  // namespace longhaul::monitor
