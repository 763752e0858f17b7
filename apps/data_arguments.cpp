#include "apps/data_arguments.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"

namespace longhaul::apps {

double parse_share(const std::string& option, const std::string& text) {
  const bool percent = text.ends_with('%');
  double value = whole_number<double>(text.substr(0, text.size() - (percent ? 1 : 0)))
                     .value_or(-1.0);
  if (percent) value /= 100.0;
  if (!(value >= 0.0 && value < 1.0)) {
    throw InputError("data", fmt::format("{} '{}' is not a share of the documents; write "
                                         "for example 1% or 0.01",
                                         option, text));
  }
  return value;
}

void add_input_arguments(CLI::App& verb, BuildArguments& arguments,
                         const std::string& inputs_help, const std::string& field_help) {
  verb.add_option("inputs", arguments.inputs.arguments, inputs_help)->required();
  verb.add_option("--field", arguments.inputs.field, field_help)->capture_default_str();
  verb.add_option("--format", arguments.format,
                  "text, jsonl, csv, parquet or arrow for all inputs; without it by "
                  "their names");
}

void add_bad_record_arguments(CLI::App& verb, BuildArguments& arguments) {
  verb.add_option("--bad-records", arguments.bad_records,
                  "fail at the first broken record, or drop them, count them and list "
                  "them")
      ->check(CLI::IsMember({"fail", "drop"}))
      ->capture_default_str();
  verb.add_option("--max-bad-records", arguments.max_bad_records,
                  "with --bad-records drop: more end the build")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void add_run_arguments(CLI::App& verb, BuildArguments& arguments,
                       const std::string& memory_help, const std::string& thing) {
  verb.add_option("--threads", arguments.threads, "0: all cores")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb.add_option("--memory", arguments.memory, memory_help);
  verb.add_flag("--force", arguments.force, fmt::format("replace {} at --out", thing));
  verb.add_flag("--restart", arguments.restart,
                "throw away what an earlier build left in OUT.building");
  verb.add_flag("--json", arguments.json, "print the figures as one JSON object");
}

data::InputOptions input_options(const BuildArguments& arguments) {
  data::InputOptions inputs = arguments.inputs;
  if (!arguments.format.empty()) inputs.format = data::parse_format(arguments.format);
  return inputs;
}

uint64_t memory_bytes(const BuildArguments& arguments, uint64_t otherwise) {
  return arguments.memory.empty() ? otherwise : parse_byte_size(arguments.memory);
}

}  // namespace longhaul::apps
