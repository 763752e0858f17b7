#pragma once

#include <functional>
#include <optional>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// What went wrong on a rank, in a form that ranks can exchange.
struct Failure {
  ErrorKind kind = ErrorKind::Internal;
  std::string area;
  std::string message;

  /// Runs `work`; nothing when it went well. An Error, a filesystem's error and any other
  /// exception (memory: Internal) make a Failure.
  static std::optional<Failure> of(const std::function<void()>& work);
  /// Any bytes that messages may hold survive as far as text can.
  static std::string to_text(const std::optional<Failure>& failure);
  static std::optional<Failure> from_text(const std::string& text);
  /// Throws the Error of the type that was thrown.
  [[noreturn]] void raise() const;
};

/// Runs `work` on rank 0 and gives its result to every rank; an Error that it throws is
/// thrown on every rank with the same kind and text. Collective.
std::string on_rank_zero(Communicator& group, const std::function<std::string()>& work);

/// Runs `work` on every rank; if it throws an Error on any, every rank throws the error
/// of the lowest such rank. What `work` does together with others must not depend on
/// what can fail on one of them. Collective.
void on_all_ranks(Communicator& group, const std::function<void()>& work);

}  // namespace longhaul::comm
