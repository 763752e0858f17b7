#pragma once

#include <cstdint>
#include <string_view>

namespace longhaul::system {

/// Writes text for a reader without ever waiting long for it. What a pipe, a terminal or
/// a socket has no room for is dropped and counted. As soon as there is room again, one
/// line says how many lines are missing there. Files always have room.
class LossyWriter {
 public:
  /// Waits up to `patience_seconds` for a reader that takes nothing. Once the reader has
  /// let that time pass, it is waited for no more until it has taken something.
  LossyWriter(int fd, double patience_seconds)
      : fd_(fd), patience_seconds_(patience_seconds) {}

  /// Writes or drops the bytes. Returns 0, or the errno of a write that failed.
  int write(std::string_view bytes);
  /// Returns whether the descriptor takes bytes now, or fails at once.
  bool has_room() const { return waits_for_room(0.0); }

 private:
  bool waits_for_room(double seconds) const;
  int put(std::string_view bytes);

  int fd_;
  double patience_seconds_;
  bool stalled_ = false;    ///< the reader has let the patience pass
  bool in_line_ = false;    ///< what was written last is not the end of a line
  int64_t lost_lines_ = 0;  ///< since the reader stopped
};

}  // namespace longhaul::system
