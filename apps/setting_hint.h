#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>

namespace longhaul::apps {

/// A verb of the command line, and the words behind it.
struct NamedVerb {
  const CLI::App* app = nullptr;
  std::string name;  ///< "longhaul data build"; "longhaul" alone where no verb is named
  std::span<const std::string> words;

  const CLI::Option* option(const std::string& word) const {
    return app->get_option_no_throw(word);
  }
  bool takes_settings() const { return option("--set") != nullptr; }
};

/// Returns the innermost verb that the words name, from the first word on.
NamedVerb find_verb(const CLI::App& program, std::span<const std::string> words);

/// Looks for an option that the verb does not have among `words`, which begin with the
/// verb. Returns what the first such option should be: another option of the verb, or the
/// --set that says what is meant ("--steps 5": "--set run.steps=5"), or what longhaul has
/// instead. The names of other trainers are known. A verb without --set is never told to
/// use it. Returns nothing if all options are known.
std::optional<std::string> setting_hint(const CLI::App& program,
                                        std::span<const std::string> words);

}  // namespace longhaul::apps
