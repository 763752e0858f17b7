#include "longhaul/run/events.h"

#include <algorithm>
#include <array>

#include "longhaul/base/clock.h"
#include "longhaul/base/lenient_json.h"
#include "longhaul/base/process.h"

namespace longhaul {
namespace {

constexpr const char* kKindField = "event";
constexpr const char* kTimeField = "time";
constexpr const char* kBootField = "boot";
constexpr const char* kBootedField = "booted";
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
  return {text_at(line, kKindField, text, kLongestKind),
          number_at(line, kTimeField, -1.0),
          text_at(line, kBootField, text, kLongestKind), number_at(line, kBootedField),
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
