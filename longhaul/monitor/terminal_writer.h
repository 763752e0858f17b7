#pragma once

#include <memory>
#include <string>
#include <vector>

#include "longhaul/monitor/screen.h"

namespace longhaul::monitor {

/// Draws screens in place on the terminal behind standard output, on its alternate
/// screen, so that the former contents come back. Keys are read without echo if standard
/// input is a terminal. Restores everything at its end. A process has one at a time.
class Terminal {
 public:
  Terminal();
  ~Terminal();

  /// Writes the whole screen at once, over the old screen, which is not cleared before.
  void draw(const std::vector<std::string>& lines);
  /// Waits for a key and returns its byte. Returns 0 if no key came in time, or if a
  /// signal came, such as that for a change of the window's size.
  char wait_key(double seconds);

  /// Returns whether standard output is a terminal that can draw in place.
  static bool available();
  /// Returns the size of the window behind standard output; 80 x 24 if that is not known.
  static ScreenSize window();

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

/// Sleeps; a signal ends the sleep early.
void sleep_seconds(double seconds);

}  // namespace longhaul::monitor
