#pragma once

#include <cstdint>
#include <functional>

#include "longhaul/base/file.h"

namespace longhaul::data {

struct StoreExportOptions {
  int64_t seq_len = 0;
  bool keep_tail = false;  ///< also write a last row that is shorter than seq_len
  uint64_t file_bytes = 500'000'000;
  int threads = 0;     ///< number of files written at a time; 0: all cores
  bool force = false;  ///< replace a save_to_disk directory that stands there
  /// Called with the number of tokens written and the number of all tokens, one call at a
  /// time.
  std::function<void(int64_t, int64_t)> progress;
};

struct StoreExportReport {
  int64_t rows = 0;
  int64_t tokens_left = 0;  ///< tokens at the end of the store that are in no row
  int64_t files = 0;
  uint64_t bytes = 0;
};

/// Writes a directory that Hugging Face's datasets.load_from_disk opens. Its rows have
/// seq_len tokens with input_ids (int32), attention_mask (int8, ones) and labels (int64).
/// Labels are the ids themselves, since Hugging Face models shift labels, or -100 if a
/// token is no target. With s = seq_len, row i holds tokens [i s, i s + s). Unlike in
/// training from the store, a row's last token does not predict the next row's first
/// token. Memory does not grow with the store. The directory appears at `out` only when
/// it is complete. Throws InputError when `store` is no store, or when the place is
/// taken.
StoreExportReport export_store(const fs::path& store, const fs::path& out,
                               const StoreExportOptions& options);

}  // namespace longhaul::data
