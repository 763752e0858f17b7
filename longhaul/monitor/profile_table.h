#pragma once

#include <string>
#include <vector>

#include "longhaul/monitor/run_files.h"

namespace longhaul::monitor {

/// An operation of a profiled step, or all operations that have no row of their own.
struct ProfileRow {
  std::string name;
  int64_t calls = 0;
  double seconds = 0.0;
};

/// Returns at most `most` rows of operations, then a row for the other operations, then a
/// row for what was outside of all operations. The event may hold anything, since it
/// comes from a file.
std::vector<ProfileRow> profile_rows(const run::ProfileEvent& event, size_t most);

/// Products of one size in a profiled step.
struct ProductRow {
  std::string name;
  std::string shape;  ///< rows x summed x columns
  int64_t calls = 0;
  double seconds = 0.0;
  double flops = 0.0;  ///< operations of all calls

  /// Returns "weight_gradient 768 x 2048 x 768".
  std::string title() const;
  /// Returns FLOP/s; 0 if the product took no time.
  double rate() const { return seconds > 0.0 ? flops / seconds : 0.0; }
};

/// Returns the products as the event has them, the longest first.
std::vector<ProductRow> product_rows(const run::ProfileEvent& event);

/// Returns "step 20: 3.61 s, aten::mm 41.0%, longhaul::attention_backward 20.1%, ..."
std::string describe_profile(const run::ProfileEvent& event);

/// Returns the newest profile of the run as a part of the report; empty if there is none.
std::string profile_section(const RunFiles& run);

/// Returns the event as lines for the log: the parts, then the operations that take
/// longest.
std::vector<std::string> profile_lines(const run::ProfileEvent& event);

}  // namespace longhaul::monitor
