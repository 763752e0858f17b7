#include "longhaul/base/error.h"

#include <fmt/format.h>

namespace longhaul {

Error::Error(ErrorKind kind, std::string area, const std::string& message)
    : std::runtime_error("[" + area + "] " + message),
      kind_(kind),
      area_(std::move(area)) {}

int Error::exit_code() const {
  switch (kind_) {
    case ErrorKind::Config:
    case ErrorKind::Input:
      return 78;
    case ErrorKind::Temporary:
      return 75;
    case ErrorKind::Internal:
      return 1;
  }
  return 1;
}

namespace detail {

void fail_check(const char* area, const std::string& message) {
  throw Error(ErrorKind::Internal, area, message);
}

void fail_assert(const char* file, int line, const char* condition,
                 const std::string& message) {
  throw Error(ErrorKind::Internal, "bug",
              fmt::format("{}:{}: {} does not hold: {}; please report this", file, line,
                          condition, message));
}

}  // namespace detail
}  // namespace longhaul
