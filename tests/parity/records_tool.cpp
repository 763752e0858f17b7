// Prints what the readers of inputs make of files, one JSON object a line:
//   longhaul_records_tool [--field F] [--format NAME] [--delimiter C] [--parts BYTES]
//     [--rate] INPUT...
// With --rate it tells how fast they are on one thread. tests/parity/test_inputs.py and
// bench/bench_inputs.py call it.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/data/input/input_set.h"

namespace longhaul::data {
namespace {

struct Command {
  InputOptions options;
  uint64_t part_bytes = uint64_t{64} << 20;
  bool rate = false;
};

Command parse_arguments(int argc, char** argv) {
  Command command;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (!name.starts_with("--")) {
      command.options.arguments.push_back(name);
      continue;
    }
    if (name == "--rate") {
      command.rate = true;
      continue;
    }
    if (i + 1 == argc) throw InputError("tool", name + " needs a value");
    const std::string value = argv[++i];
    if (name == "--field") {
      command.options.field = value;
    } else if (name == "--format") {
      command.options.format = parse_format(value);
    } else if (name == "--delimiter") {
      command.options.delimiter = value.at(0);
    } else if (name == "--parts") {
      command.part_bytes = std::stoull(value);
    } else {
      throw InputError("tool", "unknown option " + name);
    }
  }
  return command;
}

void print_record(const InputSet& inputs, RawRecord& record) {
  const RecordPlace place = record.place;
  const ParsedRecord parsed = parse_record(record, inputs.options());
  Json json = {{"place", inputs.describe(place)}, {"byte", place.offset}};
  if (parsed.problem != RecordProblem::None) {
    json["problem"] = std::string(problem_name(parsed.problem));
    json["detail"] = parsed.detail;
  } else if (parsed.kind == ParsedRecord::Kind::Ids) {
    json["ids"] = parsed.ids;
    json["targets"] = parsed.is_target;
    json["padding"] = parsed.padding;
  } else {
    json["text"] = parsed.text;
  }
  fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Prints the seconds of reading and of parsing, measured apart, piece by piece as a
/// builder works.
void print_rate(const InputSet& inputs, uint64_t part_bytes) {
  constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  double read_seconds = 0;
  double parse_seconds = 0;
  uint64_t text_bytes = 0;
  uint64_t ids = 0;
  uint64_t records = 0;
  for (const InputPart& part : inputs.parts(part_bytes)) {
    const auto reader = inputs.open(part);
    while (true) {
      std::vector<RawRecord> piece;
      auto begin = Clock::now();
      uint64_t bytes = 0;
      for (RawRecord record; bytes < kPieceBytes && reader->next(record);) {
        bytes += record.memory_bytes();
        piece.push_back(std::move(record));
      }
      read_seconds += seconds_since(begin);
      if (piece.empty()) break;
      begin = Clock::now();
      for (RawRecord& record : piece) {
        const ParsedRecord parsed = parse_record(record, inputs.options());
        text_bytes += parsed.text.size();
        ids += parsed.ids.size();
      }
      parse_seconds += seconds_since(begin);
      records += piece.size();
    }
  }
  const Json json = {{"stored_bytes", inputs.stored_bytes()},
                     {"records", records},
                     {"text_bytes", text_bytes},
                     {"ids", ids},
                     {"read_seconds", read_seconds},
                     {"parse_seconds", parse_seconds}};
  fmt::print("{}\n", json.dump());
}

void run(int argc, char** argv) {
  const Command command = parse_arguments(argc, argv);
  const InputSet inputs(command.options);
  if (command.rate) return print_rate(inputs, command.part_bytes);
  for (const InputPart& part : inputs.parts(command.part_bytes)) {
    const auto reader = inputs.open(part);
    for (RawRecord record; reader->next(record);) print_record(inputs, record);
  }
}

}  // namespace
}  // namespace longhaul::data

int main(int argc, char** argv) {
  try {
    longhaul::data::run(argc, argv);
    return 0;
  } catch (const longhaul::Error& error) {
    std::fflush(stdout);
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
}
