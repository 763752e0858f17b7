#include "longhaul/run/events.h"

#include <algorithm>
#include <array>

#include "longhaul/base/clock.h"
#include "longhaul/base/process.h"

namespace longhaul::run {
namespace {

constexpr const char* kKindField = "event";
constexpr const char* kTimeField = "time";
constexpr const char* kBootField = "boot";
constexpr const char* kBootedField = "booted";
constexpr size_t kLongestKind = 60;

}  // namespace

std::string first_bytes(std::string_view text, size_t longest) {
  return std::string(text.substr(0, longest));
}

EventHead EventHead::read(const Json& line, const TextFilter& text) {
  return {text(text_at(line, kKindField), kLongestKind),
          number_at(line, kTimeField, -1.0),
          text(text_at(line, kBootField), kLongestKind), number_at(line, kBootedField),
          attempt_of(line)};
}

int64_t EventHead::attempt_of(const Json& line) {
  return integer_at(line, "attempt", -1);
}

bool EventHead::has(std::string_view key) {
  constexpr std::array<std::string_view, 4> kKeys = {kKindField, kTimeField, kBootField,
                                                     kBootedField};
  return std::ranges::find(kKeys, key) != kKeys.end();
}

Json event_line(const char* kind, Json fields) {
  const ClockName clock = own_clock();
  fields[kKindField] = kind;
  fields[kTimeField] = unix_time();
  fields[kBootField] = clock.boot;
  fields[kBootedField] = clock.booted;
  return fields;
}

}  // namespace longhaul::run
