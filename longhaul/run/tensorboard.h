#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "longhaul/base/append_file.h"

namespace longhaul::run {

/// Returns whether a directory has event files, of whatever run.
bool holds_event_files(const fs::path& dir);

/// Writes scalars and texts as TensorBoard event files (TFRecord framing of the Event
/// message).
/// Each start of a run opens a file of its own in the directory, so that what earlier
/// starts wrote survives. What cannot be written, for a full disk say, is left out.
/// Not thread-safe.
class TensorBoardWriter {
 public:
  /// Opens the file and begins a session at `step`; makes the directory if absent. `tell`
  /// gets lines for people about what cannot be written (AppendFile).
  TensorBoardWriter(const fs::path& dir, int64_t step,
                    std::function<void(const std::string& line)> tell = {});
  ~TensorBoardWriter();
  TensorBoardWriter(TensorBoardWriter&&) noexcept = default;

  /// Begins a session: what earlier sessions wrote of this step and of later ones counts
  /// no more.
  void begin_session(int64_t step);
  void scalar(std::string_view tag, int64_t step, double value);
  /// Writes lines that TensorBoard's text plugin shows as they are.
  void text(std::string_view tag, int64_t step, std::string_view lines);
  /// Hands what is buffered to the file; also done every few seconds.
  void flush();

 private:
  void summary(std::string_view tag, int64_t step, const std::string& value);
  void record(const std::string& event);

  AppendFile file_;
  std::string buffer_;
  std::chrono::steady_clock::time_point flushed_;
};

}  // namespace longhaul::run
