#include "longhaul/base/error.h"

#include <fmt/format.h>

#include "longhaul/base/exit_code.h"

namespace longhaul {

Error::Error(ErrorKind kind, std::string area, const std::string& message)
    : std::runtime_error("[" + area + "] " + message),
      kind_(kind),
      area_(std::move(area)) {}

int Error::exit_code() const {
  if (kind_ == ErrorKind::Internal) return 1;
  return kind_ == ErrorKind::Temporary ? kExitTemporary : kExitSettings;
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
