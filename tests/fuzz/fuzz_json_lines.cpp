#include <cstddef>
#include <cstdint>
#include <string>

#include "longhaul/data/input/documents.h"

// Any bytes as a line of a JSON lines file, and as a text file: a document or a named
// problem comes out, never a crash; a document is valid UTF-8 and not empty.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul::data;
  for (const int64_t line : {int64_t{1}, int64_t{0}}) {
    RawRecord record;
    record.bytes.assign(reinterpret_cast<const char*>(data), size);
    record.line = line;
    const ParsedRecord parsed = parse_record(record, "text");
    const bool has_text = !parsed.text.empty();
    if (has_text != (parsed.problem == RecordProblem::None)) __builtin_trap();
    if (!has_text) continue;
    RawRecord again;
    again.bytes = parsed.text;
    if (parse_record(again, "text").problem == RecordProblem::InvalidUtf8)
      __builtin_trap();
  }
  return 0;
}
