#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace longhaul {

/// What a failure means to the caller; decides the exit code of the program.
enum class ErrorKind {
  Config,     ///< a setting is wrong: exit 78, never retried
  Input,      ///< a file or argument is wrong: exit 78, never retried
  Temporary,  ///< a retry can help (signal, lost peer): exit 75
  Internal,   ///< anything else, our own bugs included: exit 1
};

/// The base of every error that reaches a person:
/// `[area] what is wrong, with the values; what to do`.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string area, const std::string& message);

  ErrorKind kind() const { return kind_; }
  const std::string& area() const { return area_; }
  /// Returns what() without "[area] ", for errors that quote this one under an area of
  /// their own.
  std::string message() const { return what() + area_.size() + 3; }
  /// Returns the exit code of the program: 78, 75 or 1.
  int exit_code() const;

 private:
  ErrorKind kind_;
  std::string area_;
};

/// A setting is wrong. The message starts with `file:line:column` if one is known.
struct ConfigError : Error {
  ConfigError(std::string area, const std::string& message)
      : Error(ErrorKind::Config, std::move(area), message) {}
};

/// A file, directory or argument is wrong. The message names it, the offset or
/// line, what was expected and what was found.
struct InputError : Error {
  InputError(std::string area, const std::string& message)
      : Error(ErrorKind::Input, std::move(area), message) {}
};

/// Throws InputError of this area. The arguments behind the area are those of
/// fmt::format.
template <class... Args>
[[noreturn]] void fail_input(std::string area, fmt::format_string<Args...> text,
                             Args&&... args) {
  throw InputError(std::move(area), fmt::format(text, std::forward<Args>(args)...));
}

/// Throws ConfigError of this area. The arguments behind the area are those of
/// fmt::format.
template <class... Args>
[[noreturn]] void fail_config(std::string area, fmt::format_string<Args...> text,
                              Args&&... args) {
  throw ConfigError(std::move(area), fmt::format(text, std::forward<Args>(args)...));
}

/// The same command may succeed later.
struct TemporaryError : Error {
  TemporaryError(std::string area, const std::string& message)
      : Error(ErrorKind::Temporary, std::move(area), message) {}
};

/// Throws TemporaryError of this area. The arguments behind the area are those of
/// fmt::format.
template <class... Args>
[[noreturn]] void fail_temporary(std::string area, fmt::format_string<Args...> text,
                                 Args&&... args) {
  throw TemporaryError(std::move(area), fmt::format(text, std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] void fail_check(const char* area, const std::string& message);
[[noreturn]] void fail_assert(const char* file, int line, const char* condition,
                              const std::string& message);
}  // namespace detail

}  // namespace longhaul

/// Checks a contract between our own functions (shapes, ranges); throws Error (Internal)
/// with `[area] message`. The other arguments are those of fmt::format.
#define LH_CHECK(condition, area, ...)                                  \
  do {                                                                  \
    if (!(condition)) [[unlikely]] {                                    \
      ::longhaul::detail::fail_check(area, ::fmt::format(__VA_ARGS__)); \
    }                                                                   \
  } while (false)

/// Checks an invariant that only a bug of ours can break.
#define LH_ASSERT(condition, ...)                                     \
  do {                                                                \
    if (!(condition)) [[unlikely]] {                                  \
      ::longhaul::detail::fail_assert(__FILE__, __LINE__, #condition, \
                                      ::fmt::format(__VA_ARGS__));    \
    }                                                                 \
  } while (false)
