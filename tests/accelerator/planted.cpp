#include "tests/accelerator/planted.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/accelerator/counters.h"

namespace longhaul::softdev {
namespace {

struct Fault {
  std::string name;
  int64_t at = 0;
};

const Fault& fault() {
  static const Fault found = [] {
    const char* value = std::getenv("SOFTDEV_FAULT");
    const std::string text = value == nullptr ? "" : value;
    const size_t colon = text.find(':');
    if (colon == std::string::npos) return Fault{text, 1};
    return Fault{text.substr(0, colon), std::atoll(text.c_str() + colon + 1)};
  }();
  return found;
}

}  // namespace

bool may_be_planted(std::string_view name) { return fault().name == name; }

bool planted(std::string_view name) {
  static std::atomic<int64_t> chances = 0;
  return may_be_planted(name) && ++chances == fault().at;
}

bool planted_stop(std::string_view name, int device) {
  return device == setting("SOFTDEV_FAULT_DEVICE", 1) && planted(name);
}

}  // namespace longhaul::softdev
