#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "longhaul/base/error.h"

namespace longhaul {

/// What any exception means to a person. An Error is itself. A thread, a file handle or
/// memory that the system has refused is Temporary and names the limits. What a library
/// throws besides is Internal, and said to be a fault of this program.
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
  /// The same failure in work that a run has begun: what the system refuses now it gave
  /// before, so it may give it again (Temporary). Only what an input holds stays wrong.
  static Failure once_running(Failure failure);
  /// Nothing is the empty text. Any bytes in the message survive.
  static std::string to_text(const std::optional<Failure>& failure);
  /// InputError for text that to_text does not make: who wrote it may be hostile.
  static std::optional<Failure> from_text(const std::string& text);
  /// Throws the Error of the type that was thrown.
  [[noreturn]] void raise() const;
};

/// What a reply of work that went well begins with, where a failure's text has its kind.
inline constexpr char kAnswerMark = 'A';

/// Runs `work`: kAnswerMark and what it returned, or its failure's text.
std::string reply_of(const std::function<std::string()>& work);

/// What the work returned, or its failure, thrown. InputError for a text that is no
/// reply.
std::string open_reply(std::string reply);

}  // namespace longhaul
