#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace longhaul::cluster {

/// 32 random bytes that only the processes of one job know. Its memory is wiped at the
/// end. It never stands on a command line, in a log, or in an environment, since /proc
/// shows the first environment of a process as long as the process lives.
class Secret {
 public:
  /// Makes a new secret from the kernel's random numbers.
  static Secret make();
  /// Reads 64 hex digits. Throws InputError, which does not repeat the text.
  static Secret from_text(std::string_view text);
  /// Reads the line that to_line() returns from a descriptor, such as an agent's input.
  /// Returns nothing for an empty line; throws InputError for anything else. Takes no
  /// byte behind the line.
  static std::optional<Secret> read_line(int fd);

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  /// Returns 64 hex digits.
  std::string to_text() const;
  /// Returns the digits as a line: the first line of an agent's input.
  std::string to_line() const { return to_text() + "\n"; }
  std::span<const std::byte, 32> bytes() const { return bytes_; }

 private:
  Secret();
  std::array<std::byte, 32> bytes_{};
};

/// Returns the version of libsodium, which encrypts the control connection.
std::string sodium_version();

}  // namespace longhaul::cluster
