#pragma once

#include <string>

namespace longhaul {

/// Every key with type, default, meaning, rule, availability and what a resume may do
/// with it, as aligned text grouped by section.
std::string config_reference_text();

/// The same as a JSON array of objects: key, type, default, required, meaning, rule,
/// available, resume.
std::string config_reference_json();

}  // namespace longhaul
