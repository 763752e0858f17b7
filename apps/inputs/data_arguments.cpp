#include "apps/inputs/data_arguments.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"

namespace longhaul::apps {
namespace {

/// Returns the character of --delimiter. Returns 0 if the option was not given, so that
/// the name of each file decides.
char parse_delimiter(const std::string& text) {
  if (text.empty()) return 0;
  if (text == "\\t" || text == "tab") return '\t';
  if (text.size() == 1) return text[0];
  fail_input("data",
             "--delimiter '{}' is not one character; write for example ';' or tab", text);
}

}  // namespace

double parse_share(const std::string& option, const std::string& text) {
  const bool percent = text.ends_with('%');
  double value = whole_number<double>(text.substr(0, text.size() - (percent ? 1 : 0)))
                     .value_or(-1.0);
  if (percent) value /= 100.0;
  if (!(value >= 0.0 && value < 1.0)) {
    fail_input("data",
               "{} '{}' is not a share of the documents; write for example 1% or 0.01",
               option, text);
  }
  return value;
}

void add_input_arguments(CLI::App& verb, BuildArguments& arguments,
                         const std::string& inputs_help, const std::string& field_help) {
  verb.add_option("inputs", arguments.inputs.arguments, inputs_help)->required();
  arguments.field = verb.add_option("--field", arguments.inputs.field, field_help)
                        ->capture_default_str();
  verb.add_option("--format", arguments.format,
                  "format of all inputs: text, jsonl, csv, parquet or arrow; by default "
                  "each file's name decides");
  verb.add_option(
      "--delimiter", arguments.delimiter,
      "delimiter of CSV: one character, or tab; by default a comma, and a tab for *.tsv");
}

void add_text_arguments(CLI::App& verb, BuildArguments& arguments) {
  add_input_arguments(
      verb, arguments,
      "text as `data build` reads it: text files, JSON lines, CSV, .gz and .zst of them, "
      "Parquet, Arrow, directories of one of these kinds; patterns in quotes are "
      "expanded, and ** stands for any directories",
      "the field of a JSON line, or the column, that holds the text");
}

void add_bad_record_arguments(CLI::App& verb, BuildArguments& arguments) {
  verb.add_option("--bad-records", arguments.bad_records,
                  "fail at the first broken record, or drop them, count them and list "
                  "them")
      ->check(CLI::IsMember({"fail", "drop"}))
      ->capture_default_str();
  verb.add_option("--max-bad-records", arguments.max_bad_records,
                  "with --bad-records drop: more broken records than this end the build; "
                  "by default 1000")
      ->check(CLI::NonNegativeNumber);
}

void add_run_arguments(CLI::App& verb, BuildArguments& arguments,
                       const std::string& memory_help, const std::string& thing) {
  verb.add_option("--threads", arguments.threads, "number of threads; 0: all cores")
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
  inputs.delimiter = parse_delimiter(arguments.delimiter);
  inputs.field_asked = arguments.field != nullptr && arguments.field->count() > 0;
  return inputs;
}

void check_bad_record_arguments(const BuildArguments& arguments) {
  if (!arguments.max_bad_records || arguments.bad_records == "drop") return;
  fail_input("data",
             "--max-bad-records {}: the first broken record ends the build; give "
             "--bad-records drop as well, or leave --max-bad-records out",
             *arguments.max_bad_records);
}

uint64_t memory_bytes(const BuildArguments& arguments, uint64_t otherwise) {
  return arguments.memory.empty() ? otherwise : parse_byte_size(arguments.memory);
}

}  // namespace longhaul::apps
