#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>

namespace longhaul::apps {

/// For the words after a verb that takes --set: where one of them is an option that the
/// verb does not have, the --set that says what is meant by it ("--steps 5": "--set
/// run.steps=5"), also under the names that other trainers give it.
std::optional<std::string> setting_hint(const CLI::App& verb,
                                        std::span<const std::string> words);

}  // namespace longhaul::apps
