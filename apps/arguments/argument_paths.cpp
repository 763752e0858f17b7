#include "apps/arguments/argument_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/objects/address.h"
#include "longhaul/objects/address_problem.h"

namespace longhaul::apps {
namespace {

/// Options that take text, in which ~ and $ stand for themselves. Paths in settings are
/// checked when the settings are read. `submit` checks only outputs and secrets in the
/// command line that its job is to run; the job's process checks all of them.
constexpr const char* kTexts[] = {"--prompt",         "--field",  "--set",
                                  "--special-tokens", "--mpirun", "--delimiter",
                                  "--slurm",          "--name",   "--flags"};
constexpr const char* kOtherStart = "submit";

/// A verb, and its options and arguments that may be the address of an object, be it for
/// input or for output. All other options and arguments refuse such an address.
struct ByAddress {
  std::string_view verb;
  std::string_view options;
};

constexpr ByAddress kByAddress[] = {{"compare", "first second"},
                                    {"data build", "inputs --tokenizer --out"},
                                    {"data build-bert", "inputs --tokenizer --out"},
                                    {"data export", "store"},
                                    {"data inspect", "path"},
                                    {"data split", "store"},
                                    {"data train-tokenizer", "inputs"},
                                    {"eval", "model --data --tasks"},
                                    {"export", "source --out"},
                                    {"generate", "model --tokenizer"},
                                    {"import", "source --config --out"},
                                    {"inspect", "path"},
                                    {"try", "inputs"},
                                    {"verify", "dir"}};

bool takes_address(const std::string& verb, const std::string& option) {
  const auto* const found = std::ranges::find(kByAddress, verb, &ByAddress::verb);
  return found != std::end(kByAddress) && has_word(found->options, option);
}

/// Returns whether an option names a file or directory that the verb writes.
bool names_output(std::string_view option) {
  return option.starts_with("--out") || option == "--dir" || option == "--run-dir";
}

std::string refusal(const std::string& word, const std::string& meant) {
  return fmt::format("\"{}\": {}", objects::without_secrets(word), meant);
}

/// Returns what is wrong with the address of an output that a verb may write to.
std::string problem_of_output(const std::string& word) {
  try {
    const objects::Address address = objects::parse_pattern(word);
    if (!has_wildcard(address.key)) return {};
  } catch (const InputError& error) {
    return error.message();
  }
  return refusal(word,
                 "it has a character of patterns (* ? [), so nothing could read what is "
                 "written there; name an address without it");
}

/// Returns what is wrong with a word that is the value of an option or argument of a
/// verb.
std::string problem_of_word(const std::string& verb, const std::string& option,
                            const std::string& word) {
  if (objects::is_address(word)) {
    if (!takes_address(verb, option)) {
      std::string meant = as_address(word);
      if (verb == "new" && option == "data") {
        meant +=
            "; new counts the tokens of a copy, and the run file that it writes may then "
            "name the address";
      }
      return refusal(word, meant);
    }
    // The verb checks whether an input exists when it opens the input.
    return names_output(option) ? problem_of_output(word) : "";
  }
  std::string meant = unexpanded(word);
  if (meant.empty() && names_output(option)) meant = as_address(word);
  return meant.empty() ? meant : refusal(word, meant);
}

/// Returns whether two names lead to one place. The place is a file or directory, which
/// links may lead to, or a path at which one would be made.
bool are_one_place(const std::string& one, const std::string& other) {
  const auto plain = [](const std::string& word) {
    fs::path path = word;
    if (!objects::is_address(word)) {
      std::error_code ignored;
      path = fs::weakly_canonical(fs::absolute(word), ignored);
    }
    return path.has_filename() ? path : path.parent_path();
  };
  std::error_code absent;
  return plain(one) == plain(other) || fs::equivalent(one, other, absent);
}

/// Throws if an output of a verb is also another output or an input of the verb: with
/// --force the output would replace it.
void refuse_one_place(const CLI::App& verb) {
  struct Place {
    std::string option;
    std::string word;
    bool is_output = false;
  };
  std::vector<Place> places;
  for (const CLI::Option* option : verb.get_options()) {
    const auto is_text = [&](const char* text) { return option->check_name(text); };
    if (option->get_type_name() != "TEXT" || std::ranges::any_of(kTexts, is_text)) {
      continue;
    }
    const std::string name = option->get_name();
    const bool is_output = name.starts_with("--out");
    for (const std::string& word : option->results()) {
      std::error_code ignored;
      // A word of another option is a path only if something exists there. Otherwise it
      // may be the name of something else.
      const bool is_path =
          is_output || objects::is_address(word) || fs::exists(word, ignored);
      if (!word.empty() && is_path) places.push_back({name, word, is_output});
    }
  }
  for (const Place& output : places) {
    if (!output.is_output) continue;
    for (const Place& other : places) {
      if (&other == &output || !are_one_place(output.word, other.word)) continue;
      throw CLI::ValidationError(
          output.option,
          fmt::format("{} and {} {} are one place: the output would take the place of "
                      "the other; name another place",
                      objects::without_secrets(output.word), other.option,
                      objects::without_secrets(other.word)));
    }
  }
}

/// Adds the checks of refuse_wrong_paths() to a verb of this name and to the verbs below
/// it.
void refuse_wrong_paths_of(CLI::App& verb, const std::string& name) {
  for (CLI::App* under : verb.get_subcommands({})) {
    refuse_wrong_paths_of(*under, name + (name.empty() ? "" : " ") + under->get_name());
  }
  verb.parse_complete_callback([&verb] { refuse_one_place(verb); });
  for (CLI::Option* option : verb.get_options()) {
    const auto is_text = [&](const char* text) { return option->check_name(text); };
    const bool words = name == kOtherStart && option->check_name("config");
    if (option->get_items_expected_max() == 0 || words ||
        std::ranges::any_of(kTexts, is_text)) {
      continue;
    }
    option->check([name, option_name = option->get_name()](const std::string& word) {
      return problem_of_word(name, option_name, word);
    });
  }
}

}  // namespace

void refuse_wrong_paths(CLI::App& program) { refuse_wrong_paths_of(program, ""); }

std::string problem_of_outputs(std::span<const std::string> words) {
  if (words.empty()) return {};
  const bool below = words[0] == "data" || words[0] == "recipe";
  const std::string verb =
      below && words.size() > 1 ? words[0] + " " + words[1] : words[0];
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string option = words[i].substr(0, equals);
    if (!names_output(option)) continue;
    std::string word;
    if (equals != std::string::npos) {
      word = words[i].substr(equals + 1);
    } else if (i + 1 < words.size()) {
      word = words[i + 1];
    }
    if (objects::is_address(word) && takes_address(verb, option)) {
      const std::string problem = problem_of_output(word);
      if (!problem.empty()) return fmt::format("{}: {}", option, problem);
      continue;
    }
    const std::string meant = as_address(word);
    if (!meant.empty()) return option + ": " + refusal(word, meant);
  }
  return {};
}

std::string problem_of_secrets(std::span<const std::string> words) {
  for (const std::string& word : words) {
    if (std::string problem = objects::secret_problem(word); !problem.empty()) {
      return problem;
    }
  }
  return {};
}

}  // namespace longhaul::apps
