#pragma once

#include <gtest/gtest.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "longhaul/data/input/input_set.h"
#include "tests/support/data_files.h"

namespace longhaul::data {

inline InputOptions inputs_of(const std::vector<fs::path>& files,
                              const std::string& field = "text") {
  InputOptions options;
  for (const fs::path& file : files) options.arguments.push_back(file.string());
  options.field = field;
  return options;
}

/// Returns a string for a record: the text, "[1 2 3*]" for ids (* marks a token that is
/// no target), or "!problem: detail".
inline std::string shown(ParsedRecord parsed) {
  if (parsed.problem != RecordProblem::None) {
    return "!" + std::string(problem_name(parsed.problem)) +
           (parsed.detail.empty() ? "" : ": " + parsed.detail);
  }
  if (parsed.kind == ParsedRecord::Kind::Text) return parsed.text;
  std::string text = "[";
  for (size_t i = 0; i < parsed.ids.size(); ++i) {
    text += (i > 0 ? " " : "") + std::to_string(parsed.ids[i]);
    if (!parsed.is_target.empty() && parsed.is_target[i] == 0) text += "*";
  }
  text += "]";
  return parsed.padding > 0 ? text + "-" + std::to_string(parsed.padding) : text;
}

/// Returns all records, part by part, as shown() does, with "@line+offset" behind where
/// `with_place` is set. `ranges` gets the finished ranges.
inline std::vector<std::string> read_records(const InputOptions& options,
                                             uint64_t about_bytes = uint64_t{1} << 40,
                                             std::vector<FinishedRange>* ranges = nullptr,
                                             bool with_place = false) {
  const InputSet inputs(options);
  std::vector<std::string> records;
  for (const InputPart& part : inputs.parts(about_bytes)) {
    const auto reader = inputs.open(part);
    RawRecord record;
    while (reader->next(record)) {
      const RecordPlace place = record.place;
      records.push_back(shown(parse_record(record, inputs.options())));
      if (!with_place) continue;
      records.back() +=
          "@" +
          std::to_string(inputs.lines_before(place.file, place.range_begin) +
                         place.line) +
          "+" + std::to_string(place.offset);
    }
    if (ranges == nullptr) continue;
    ranges->insert(ranges->end(), reader->finished().begin(), reader->finished().end());
  }
  return records;
}

inline std::string zstd_packed(const std::string& text, int window_log = 0) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  if (window_log > 0) {
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
    ZSTD_CCtx_setParameter(context, ZSTD_c_enableLongDistanceMatching, 1);
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  }
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  ZSTD_inBuffer from{text.data(), text.size(), 0};
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  // The size is not known ahead, as for a pipe into the zstd program.
  ZSTD_compressStream2(context, &to, &from, ZSTD_e_continue);
  ZSTD_compressStream2(context, &to, &from, ZSTD_e_end);
  ZSTD_freeCCtx(context);
  out.resize(to.pos);
  return out;
}

using Records = std::vector<std::string>;

}  // namespace longhaul::data
