#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/record.h"

namespace longhaul::data {

/// Reads the texts of all inputs one by one, for callers that need no worker threads. Not
/// thread-safe.
class DocumentReader {
 public:
  explicit DocumentReader(InputOptions options, BadRecords bad = BadRecords::Fail);
  /// Reads the next text; false at the end. Throws InputError for a bad record with
  /// BadRecords::Fail, and for a document that is a list of ids.
  bool next(std::string& text);
  const DroppedRecords& dropped() const { return dropped_; }
  const InputSet& inputs() const { return inputs_; }
  /// Returns how many of the inputs().stored_bytes() bytes were read so far, for a
  /// progress display.
  uint64_t bytes_read() const;

 private:
  InputSet inputs_;
  BadRecords bad_;
  DroppedRecords dropped_;
  std::unique_ptr<RecordReader> reader_;
  RawRecord record_;
};

}  // namespace longhaul::data
