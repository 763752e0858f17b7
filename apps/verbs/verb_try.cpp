#include <memory>
#include <string>

#include "apps/inputs/data_arguments.h"
#include "apps/try/try_chain.h"
#include "apps/verbs.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/data/input/path_pattern.h"

namespace longhaul::apps {
namespace {

/// How much of the texts is read at most; a minute's training cannot use more.
constexpr uint64_t kMostBytes = 8'000'000;

struct TryCall {
  BuildArguments common;  ///< its inputs alone are used
  std::string out;
  double seconds = 60.0;
};

/// Returns the path without a slash at its end.
fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

/// Returns "try-book" for texts/book.txt.gz.
fs::path default_directory(const std::string& argument) {
  fs::path name = without_slash(argument).filename();
  if (data::compression_of_name(name) != data::Compression::None) name = name.stem();
  const bool plain = !data::is_pattern(name) && name != "." && name != "..";
  return "try-" + (plain ? name.stem().string() : std::string("text"));
}

void run_try(const TryCall& call, const objects::Access& objects) {
  TryOptions options;
  options.dir = call.out.empty() ? default_directory(call.common.inputs.arguments.front())
                                 : without_slash(call.out);
  options.seconds = call.seconds;
  data::InputOptions inputs = input_options(call.common);
  inputs.objects = objects.store();
  const TextSample sample = take_text(std::move(inputs), kMostBytes);
  run_try_chain(sample, options);
}

}  // namespace

void add_try(CLI::App& program, Outcome& outcome) {
  const auto call = std::make_shared<TryCall>();
  CLI::App* verb = program.add_subcommand(
      "try", "Trains a small model on a text of your own in a minute, and shows how");
  add_input_arguments(*verb, call->common,
                      "text as `data build` reads it, and files of any other name, which "
                      "count as text (source code); of large texts the first 8 MB",
                      "the field of a JSON line, or the column, that holds the text");
  verb->add_option("--out", call->out,
                   "the directory for everything that is made; by default try-NAME");
  verb->add_option(
          "--seconds", call->seconds,
          "about how long everything may take; more seconds train the model longer")
      ->check(CLI::Range(5.0, 3600.0))
      ->capture_default_str();
  verb->footer(
      "Makes a tokenizer and a token store, trains, samples text and exports, each with "
      "its own command.\n"
      "The commands are printed, so that you can type them again with larger numbers.\n"
      "Ctrl-C, or a terminal that closes, ends the trial and removes what it made.\n"
      "Example: longhaul try book.txt");
  verb->callback([call, &outcome] { run_try(*call, outcome.objects); });
}

}  // namespace longhaul::apps
