#include <cstddef>
#include <cstdint>
#include <string>

#include "longhaul/data/input/input_set.h"

// Takes any bytes as a line of a JSON lines file, and as a text file. A document or a
// named problem comes out, never a crash. A text is valid UTF-8 and not empty. Ids are
// not negative, and each has its target bit.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul::data;
  const InputOptions options;
  for (const auto form : {RawRecord::Form::JsonLine, RawRecord::Form::WholeFile}) {
    RawRecord record;
    record.bytes.assign(reinterpret_cast<const char*>(data), size);
    record.form = form;
    const ParsedRecord parsed = parse_record(record, options);
    const bool has_document = !parsed.text.empty() || !parsed.ids.empty();
    if (has_document != (parsed.problem == RecordProblem::None)) __builtin_trap();
    if (!has_document) continue;
    if (!parsed.is_target.empty() && parsed.is_target.size() != parsed.ids.size()) {
      __builtin_trap();
    }
    for (const int32_t id : parsed.ids) {
      if (id < 0) __builtin_trap();
    }
    RawRecord again;
    again.form = RawRecord::Form::WholeFile;
    again.bytes = parsed.text;
    if (parse_record(again, options).problem == RecordProblem::InvalidUtf8)
      __builtin_trap();
  }
  return 0;
}
