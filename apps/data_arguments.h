#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/verbs/verbs.h"
#include "longhaul/data/input/input_set.h"

namespace longhaul::apps {

/// "1%" or "0.01" of the documents: 0 <= share < 1. InputError names the option.
double parse_share(const std::string& option, const std::string& text);

/// What the verbs that make something of text or records have in common.
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

// Each adds options whose values go to `arguments`, which must outlive the parsing.

/// The inputs, --field, --format, --delimiter.
void add_input_arguments(CLI::App& verb, BuildArguments& arguments,
                         const std::string& inputs_help, const std::string& field_help);
/// --bad-records, --max-bad-records.
void add_bad_record_arguments(CLI::App& verb, BuildArguments& arguments);
/// --threads, --memory, --force, --restart, --json. `thing`: what is made.
void add_run_arguments(CLI::App& verb, BuildArguments& arguments,
                       const std::string& memory_help, const std::string& thing);

/// The inputs, with the format that was named. InputError for a delimiter that is not one
/// character.
data::InputOptions input_options(const BuildArguments& arguments);

/// InputError for --max-bad-records where none are dropped.
void check_bad_record_arguments(const BuildArguments& arguments);

/// --memory in bytes; `otherwise` without it.
uint64_t memory_bytes(const BuildArguments& arguments, uint64_t otherwise);

/// All of them in BuildOptions or BuildExamplesOptions.
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
