#pragma once

#include <string>

namespace longhaul {

/// Returns every key with type, default, meaning, rule, availability and what a resume
/// may do with the key, as aligned text grouped by section.
std::string config_reference_text();

/// Returns every key as a JSON array of objects with the members key, type, default,
/// required, meaning, rule, available and resume.
std::string config_reference_json();

}  // namespace longhaul
