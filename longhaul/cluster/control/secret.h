#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace longhaul::cluster {

/// 32 random bytes that only the processes of one job know. Wiped when it goes; never on
/// a command line, in an environment (/proc shows the first one of a process for as long
/// as it lives) or in a log.
class Secret {
 public:
  /// A new one, from the kernel's random numbers.
  static Secret make();
  /// From 64 hex digits. InputError, which does not repeat the text.
  static Secret from_text(std::string_view text);
  /// Reads to_line() from a descriptor, as an agent does from its input. Nothing where
  /// that is empty; InputError for anything else. Takes no byte of what follows.
  static std::optional<Secret> read_line(int fd);

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  /// 64 hex digits.
  std::string to_text() const;
  /// The same as a line: the first of an agent's input.
  std::string to_line() const { return to_text() + "\n"; }
  std::span<const std::byte, 32> bytes() const { return bytes_; }

 private:
  Secret();
  std::array<std::byte, 32> bytes_{};
};

/// The version of the library that the control connection is made with.
std::string sodium_version();

}  // namespace longhaul::cluster
