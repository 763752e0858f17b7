#include "longhaul/run/events.h"

#include <algorithm>
#include <array>

#include "longhaul/base/clock.h"
#include "longhaul/base/lenient_json.h"
#include "longhaul/base/process.h"

namespace longhaul {
namespace {

constexpr const char* kKindKey = "event";
constexpr const char* kTimeKey = "time";
constexpr const char* kBootKey = "boot";
constexpr const char* kBootedKey = "booted";
constexpr size_t kLongestKind = 60;
constexpr size_t kLongestText = 400;

std::string text_at(const Json& line, const char* key, const EventHead::Text& text,
                    size_t longest) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_string()) return {};
  return text(found->get_ref<const std::string&>(), longest);
}

}  // namespace

EventHead EventHead::read(const Json& line, const Text& text) {
  return {text_at(line, kKindKey, text, kLongestKind), number_at(line, kTimeKey, -1.0),
          text_at(line, kBootKey, text, kLongestKind), number_at(line, kBootedKey),
          attempt_of(line)};
}

int64_t EventHead::attempt_of(const Json& line) {
  return integer_at(line, "attempt", -1);
}

bool EventHead::has(std::string_view key) {
  constexpr std::array<std::string_view, 4> kKeys = {kKindKey, kTimeKey, kBootKey,
                                                     kBootedKey};
  return std::ranges::find(kKeys, key) != kKeys.end();
}

Json event_line(const char* kind, Json fields) {
  const ClockName clock = own_clock();
  fields[kKindKey] = kind;
  fields[kTimeKey] = unix_time();
  fields[kBootKey] = clock.boot;
  fields[kBootedKey] = clock.booted;
  return fields;
}

namespace detail {

void EventReader::one(const char* key, int64_t& value) const {
  value = integer_at(line, key, value);
}

void EventReader::one(const char* key, double& value) const {
  value = number_at(line, key, value);
}

void EventReader::one(const char* key, std::string& value) const {
  value = text_at(line, key, text, kLongestText);
}

void EventReader::one(const char* key, Json& value) const {
  value = line.value(key, Json());
}

}  // namespace detail
}  // namespace longhaul
