#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace longhaul::cluster {

/// The environment variable that carries a job's secret to its agents.
inline constexpr const char* kSecretVariable = "LONGHAUL_CONTROL_SECRET";

/// 32 random bytes that only the processes of one job know. Wiped when it goes; never on
/// a command line, never in a log.
class Secret {
 public:
  /// A new one, from the kernel's random numbers.
  static Secret make();
  /// From 64 hex digits. InputError, which does not repeat the text.
  static Secret from_text(std::string_view text);
  /// Reads LONGHAUL_CONTROL_SECRET and removes it, out of /proc/PID/environ as well, so
  /// that children do not inherit it. Nothing where it is not set. Not thread-safe, as
  /// the environment is not: call it at the start of the program.
  static std::optional<Secret> take_from_environment();

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  /// 64 hex digits, for the environment of a child alone.
  std::string to_text() const;
  std::span<const std::byte, 32> bytes() const { return bytes_; }

 private:
  Secret();
  std::array<std::byte, 32> bytes_{};
};

/// The version of the library that the control connection is made with.
std::string sodium_version();

}  // namespace longhaul::cluster
