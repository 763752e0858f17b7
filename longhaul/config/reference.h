#pragma once

#include <string>

namespace longhaul {

/// Returns every key with type, default, meaning, rule, availability and what a resume
/// may do with the key, as aligned text grouped by section.
std::string config_reference_text();

/// Returns the same as a JSON array of objects: key, type, default, required, meaning,
/// rule, available, resume.
std::string config_reference_json();

}  // namespace longhaul
