#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/data/input/input_set.h"

namespace longhaul::apps {

/// Reads "1%" or "0.01" of the documents: 0 <= share < 1. InputError names the option.
double parse_share(const std::string& option, const std::string& text);

/// The arguments that are common to the verbs that read text or records and make data or
/// a tokenizer of them.
struct BuildArguments {
  data::InputOptions inputs;
  std::string out;
  std::string format;
  std::string delimiter;
  const CLI::Option* field = nullptr;  ///< tells whether it was given
  std::string bad_records = "fail";
  std::optional<int64_t> max_bad_records;  ///< given with bad_records = "drop" only
  std::string memory;
  int threads = 0;
  bool force = false;
  bool restart = false;
  bool json = false;
};

// Each function adds options whose values go to `arguments`, which must outlive the
// parsing.

/// Adds the inputs, --field, --format and --delimiter.
void add_input_arguments(CLI::App& verb, BuildArguments& arguments,
                         const std::string& inputs_help, const std::string& field_help);
/// Adds the inputs, --field, --format and --delimiter for a verb that reads text alone.
void add_text_arguments(CLI::App& verb, BuildArguments& arguments);
/// Adds --bad-records and --max-bad-records.
void add_bad_record_arguments(CLI::App& verb, BuildArguments& arguments);
/// Adds --threads, --memory, --force, --restart and --json. `thing` is what is made.
void add_run_arguments(CLI::App& verb, BuildArguments& arguments,
                       const std::string& memory_help, const std::string& thing);

/// Returns the inputs with the options that say how they are read, such as --format.
/// Throws InputError for a delimiter that is not one character.
data::InputOptions input_options(const BuildArguments& arguments);

/// Throws InputError if --max-bad-records is given while the first bad record ends the
/// build, since no bad record is dropped.
void check_bad_record_arguments(const BuildArguments& arguments);

/// Returns --memory in bytes, and `otherwise` without it.
uint64_t memory_bytes(const BuildArguments& arguments, uint64_t otherwise);

/// Sets the common arguments in BuildOptions or BuildExamplesOptions.
template <typename Options>
void set_build_options(const BuildArguments& arguments, Options& options) {
  check_bad_record_arguments(arguments);
  options.inputs = input_options(arguments);
  options.out = arguments.out;
  options.bad_records =
      arguments.bad_records == "drop" ? data::BadRecords::Drop : data::BadRecords::Fail;
  options.max_bad_records = arguments.max_bad_records.value_or(options.max_bad_records);
  options.memory_bytes = memory_bytes(arguments, options.memory_bytes);
  options.threads = arguments.threads;
  options.force = arguments.force;
  options.restart = arguments.restart;
}

}  // namespace longhaul::apps
