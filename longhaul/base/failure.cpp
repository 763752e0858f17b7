#include "longhaul/base/failure.h"

#include <fmt/format.h>

#include <cerrno>
#include <new>
#include <string_view>
#include <system_error>

#include "longhaul/base/file.h"
#include "longhaul/base/refused.h"

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

/// Returns the part of a message in which LibTorch's allocators say that there is no
/// memory; empty for other messages. The words are compared because this folder does not
/// link LibTorch and cannot name its exceptions.
std::string_view words_of_memory(std::string_view words) {
  for (const std::string_view said :
       {"can't allocate memory: ", "CUDA out of memory", "CUDA error: out of memory"}) {
    const size_t place = words.find(said);
    if (place != std::string_view::npos) return words.substr(place);
  }
  return {};
}

/// Returns what CUDA says of a GPU that failed or is gone; empty for other messages.
/// Failures that a kernel of ours may cause (an illegal address) are not among them.
std::string_view words_of_device(std::string_view words) {
  const size_t begin = words.find("CUDA error: ");
  if (begin == std::string_view::npos) return {};
  const std::string_view line = words.substr(begin, words.find('\n', begin) - begin);
  for (const std::string_view said :
       {"uncorrectable ECC error encountered", "uncorrectable NVLink error",
        "hardware stack error", "device(s) is/are busy or unavailable",
        "no CUDA-capable device is detected", "over nvlink or a hardware error",
        "MPS client failed to connect", "MPS server is not ready", "unknown error"}) {
    if (line.find(said) != std::string_view::npos) return line;
  }
  return {};
}

/// Returns the message without the stack that LibTorch appends.
std::string first_words(std::string_view words) {
  words = words.substr(0, words.find("\nException raised from"));
  return std::string(words.substr(0, words.find("\nC++ CapturedTraceback")));
}

/// Returns what an exception of a kernel in Python says, or an empty text. LibTorch puts
/// the place in Python behind the words.
std::string words_of_python(const std::string& words) {
  const size_t place = words.find("\n\nAt:\n");
  if (place == words.npos) return {};
  const size_t end = words.find_last_not_of(" \n", place);
  return words.substr(0, end == words.npos ? 0 : end + 1);
}

Error of_system(const std::system_error& problem) {
  const int error = problem.code().value();
  const bool of_errno = problem.code().category() == std::generic_category() ||
                        problem.code().category() == std::system_category();
  const std::string words = problem.what();
  // The library {fmt} writes "cannot write" if it cannot print to a stream.
  const bool of_output = words.starts_with("cannot write");
  // The standard library's threads throw the bare errno.
  if (of_errno && !of_output && (error == EAGAIN || error == ENOMEM)) {
    return refused("thread", "thread", error);
  }
  const fs::path place = of_output ? "the output" : "";
  return to_error(fs::filesystem_error(words, place, problem.code()));
}

Error of_memory(std::string_view words) {
  try {
    const std::string told = words.empty() ? "" : fmt::format(" ({})", words);
    return refused("memory", "more memory" + told, ENOMEM,
                   "free some, use more ranks or a smaller batch.micro_size");
  } catch (const std::bad_alloc&) {
    return {ErrorKind::Temporary, "memory",
            "this process has no memory left; raise ulimit -d and ulimit -v"};
  }
}

}  // namespace

Error to_error(const std::exception& problem) {
  if (const auto* error = dynamic_cast<const Error*>(&problem)) return *error;
  if (const auto* files = dynamic_cast<const fs::filesystem_error*>(&problem)) {
    return to_error(*files);
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&problem)) {
    return of_system(*system);
  }
  if (dynamic_cast<const std::bad_alloc*>(&problem) != nullptr) return of_memory({});
  const std::string words = first_words(problem.what());
  if (const auto told = words_of_memory(words); !told.empty()) return of_memory(told);
  if (const auto told = words_of_device(words); !told.empty()) {
    return {
        ErrorKind::Temporary, "device",
        fmt::format("this rank's GPU is lost ({}); look at nvidia-smi -q and for Xid in "
                    "dmesg, and leave the machine out if it happens again. "
                    "Checkpoints are untouched",
                    told)};
  }
  if (const auto told = words_of_python(words); !told.empty()) {
    return {
        ErrorKind::Config, "device",
        fmt::format("the device's backend failed: {}\nCheckpoints are untouched", told)};
  }
  // oneDNN says no more than this if it gets no memory for its code.
  if (words == "could not create a primitive" && !warning_of_limits().empty()) {
    return of_memory(words);
  }
  return {ErrorKind::Internal, "bug",
          fmt::format("an error that longhaul does not expect: {}; please report it with "
                      "the command and its input",
                      words)};
}

std::optional<Failure> Failure::of(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const std::exception& problem) {
    return failure_of(to_error(problem));
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
    fail_input("process",
               "another process reported its failure in an unknown form: the report is "
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
  if (reply.empty()) fail_input("process", "another process sent an empty reply");
  if (reply.front() != kAnswerMark) Failure::from_text(reply)->raise();
  reply.erase(0, 1);
  return reply;
}

}  // namespace longhaul
