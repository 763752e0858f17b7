#include "longhaul/data/input/documents.h"

#include <fmt/format.h>

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/data/input/wrong_files.h"

namespace longhaul::data {
namespace {

InputPart everything(const InputSet& inputs) {
  InputPart part;
  for (size_t i = 0; i < inputs.files().size(); ++i) {
    part.ranges.push_back({static_cast<int>(i), 0, InputRange::kToEnd});
  }
  part.stored_bytes = inputs.stored_bytes();
  return part;
}

}  // namespace

DocumentReader::DocumentReader(InputOptions options, BadRecords bad)
    : inputs_(std::move(options)),
      bad_(bad),
      reader_(inputs_.open(everything(inputs_))) {}

uint64_t DocumentReader::bytes_read() const { return reader_->bytes_read(); }

bool DocumentReader::next(std::string& text) {
  while (reader_->next(record_)) {
    ParsedRecord parsed = parse_record(record_, inputs_.options());
    if (parsed.problem == RecordProblem::None) {
      if (parsed.kind == ParsedRecord::Kind::Ids) {
        fail_input("data",
                   "{}: '{}' holds token ids, not text; name another field with --field",
                   inputs_.describe(record_.place), inputs_.options().field);
      }
      text = std::move(parsed.text);
      return true;
    }
    const bool fails = bad_ == BadRecords::Fail && parsed.problem != RecordProblem::Empty;
    const bool listed =
        dropped_.counts[parsed.problem] < static_cast<int64_t>(DroppedRecords::kExamples);
    if (fails) fail_record(inputs_, record_.place, parsed.problem, parsed.detail);
    std::string place = listed ? inputs_.describe(record_.place) : std::string();
    dropped_.add(parsed.problem, {std::move(place), std::move(parsed.detail)});
  }
  return false;
}

}  // namespace longhaul::data
