#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>

namespace longhaul::apps {

/// Looks for an option that the verb does not have among `words`, which begin with the
/// verb. Returns what the first such option should be: another option of the verb, or the
/// --set that says what is meant ("--steps 5": "--set run.steps=5"), or what longhaul has
/// instead. The names of other trainers are known. A verb without --set is never told to
/// use it. Returns nothing where all options are known.
std::optional<std::string> setting_hint(const CLI::App& program,
                                        std::span<const std::string> words);

}  // namespace longhaul::apps
