#include "longhaul/base/failure.h"

#include <new>

#include "longhaul/base/file.h"

namespace longhaul {
namespace {

// A failure's text is the kind's digit, the area, a line's end and the message.
char digit_of(ErrorKind kind) { return static_cast<char>('0' + static_cast<int>(kind)); }

std::optional<ErrorKind> kind_of(char digit) {
  for (const ErrorKind kind :
       {ErrorKind::Config, ErrorKind::Input, ErrorKind::Temporary, ErrorKind::Internal}) {
    if (digit_of(kind) == digit) return kind;
  }
  return std::nullopt;
}

Failure failure_of(const Error& error) {
  return {error.kind(), error.area(), error.message()};
}

}  // namespace

std::optional<Failure> Failure::of(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    return failure_of(error);
  } catch (const fs::filesystem_error& error) {
    return failure_of(to_error(error));
  } catch (const std::bad_alloc&) {
    return Failure{ErrorKind::Internal, "memory", "this process has no memory left"};
  } catch (const std::exception& error) {
    return Failure{ErrorKind::Internal, "unexpected", error.what()};
  }
}

Failure Failure::once_running(Failure failure) {
  // "file" is the area of calls that the system refused (base/file.h).
  if (failure.kind == ErrorKind::Input && failure.area == "file") {
    failure.kind = ErrorKind::Temporary;
  }
  return failure;
}

std::string Failure::to_text(const std::optional<Failure>& failure) {
  if (!failure) return {};
  return digit_of(failure->kind) + failure->area + '\n' + failure->message;
}

std::optional<Failure> Failure::from_text(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto kind = kind_of(text.front());
  const size_t line = text.find('\n');
  if (!kind || line == std::string::npos) {
    throw InputError("process",
                     "another process told of its end in a form that is none: it is "
                     "damaged, or of another version");
  }
  return Failure{*kind, text.substr(1, line - 1), text.substr(line + 1)};
}

void Failure::raise() const {
  if (kind == ErrorKind::Config) throw ConfigError(area, message);
  if (kind == ErrorKind::Input) throw InputError(area, message);
  if (kind == ErrorKind::Temporary) throw TemporaryError(area, message);
  throw Error(kind, area, message);
}

std::string reply_of(const std::function<std::string()>& work) {
  std::string reply;
  const auto failure = Failure::of([&] {
    reply = work();
    reply.insert(reply.begin(), kAnswerMark);
  });
  return failure ? Failure::to_text(failure) : reply;
}

std::string open_reply(std::string reply) {
  if (reply.empty()) throw InputError("process", "another process sent an empty reply");
  if (reply.front() != kAnswerMark) Failure::from_text(reply)->raise();
  reply.erase(0, 1);
  return reply;
}

}  // namespace longhaul
