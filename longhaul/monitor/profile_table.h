#pragma once

#include <string>
#include <vector>

#include "longhaul/monitor/run_files.h"

namespace longhaul::monitor {

/// An operation of a profiled step, or the rest of them.
struct ProfileRow {
  std::string name;
  int64_t calls = 0;
  double seconds = 0.0;
};

/// The rows of an event that anybody may have written, at most `most` and one for the
/// others; the last is what was outside of all operations.
std::vector<ProfileRow> profile_rows(const ProfileEvent& event, size_t most);

/// "step 20: 3.61 s, aten::mm 41.0%, longhaul::attention_backward 20.1%, ..."
std::string describe_profile(const ProfileEvent& event);

/// The newest profile of the run as a part of the report; empty where there is none.
std::string profile_section(const RunFiles& run);

}  // namespace longhaul::monitor
