#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "longhaul/base/error.h"

namespace longhaul {

/// Returns what any exception means to a person. An Error stays as it is. A thread, a
/// file handle or memory that the system has refused is Temporary, and the error names
/// the limits. Any other exception of a library is Internal, and the error calls it a
/// fault of this program.
Error to_error(const std::exception& problem);

/// What went wrong, in a form that processes can exchange: from a rank to the others, or
/// from a child that reads a file to its parent.
struct Failure {
  ErrorKind kind = ErrorKind::Internal;
  std::string area;
  std::string message;

  /// Runs `work`. Returns nothing when it went well, else what to_error() makes of its
  /// exception.
  static std::optional<Failure> of(const std::function<void()>& work);
  /// Returns the failure of work in a run that has begun. The system gave before what it
  /// refuses now, so it may give it again: such a failure becomes Temporary. A failure
  /// that comes from the contents of an input stays as it is.
  static Failure once_running(Failure failure);
  /// Returns a text of a failure; nothing becomes the empty text. Any bytes in the
  /// message survive.
  static std::string to_text(const std::optional<Failure>& failure);
  /// Reads what to_text() made. Throws InputError for any other text, whose writer may be
  /// hostile.
  static std::optional<Failure> from_text(const std::string& text);
  /// Returns the failure for people: "[AREA] MESSAGE".
  std::string in_words() const { return "[" + area + "] " + message; }
  /// Throws the failure as an Error of the type that was thrown first.
  [[noreturn]] void raise() const;
};

/// The first character of a reply of work that went well. In its place the text of a
/// failure has the digit of its kind.
inline constexpr char kAnswerMark = 'A';

/// Runs `work`. Returns kAnswerMark and the result of `work`, or the text of its failure.
std::string reply_of(const std::function<std::string()>& work);

/// Returns what the work returned, or throws its failure. Throws InputError for a text
/// that is no reply.
std::string open_reply(std::string reply);

}  // namespace longhaul
