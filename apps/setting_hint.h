#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>

namespace longhaul::apps {

/// Looks for an option that a verb with --set does not have among the words after the
/// verb, and returns the --set that says what is meant ("--steps 5": "--set
/// run.steps=5"). It knows the names that other trainers give to settings. Returns
/// nothing where there is no such word.
std::optional<std::string> setting_hint(const CLI::App& verb,
                                        std::span<const std::string> words);

}  // namespace longhaul::apps
