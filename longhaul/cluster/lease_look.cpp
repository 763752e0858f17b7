#include "longhaul/cluster/lease_look.h"

#include <system_error>

#include "longhaul/base/json.h"
#include "longhaul/base/owner_lock.h"
#include "longhaul/cluster/bounded_child.h"

namespace longhaul::cluster {
namespace {

Json words_of_lease(const fs::path& lock, double lease_seconds) {
  OwnerLockOptions options;
  options.lease_seconds = lease_seconds;
  const auto state = OwnerLock::look(lock, options);
  if (!state) return {{"there", false}};
  std::error_code error;
  const auto renewed = fs::last_write_time(lock, error);
  return {{"there", true},
          {"released", state->holder.released},
          {"alive", state->alive},
          {"number", state->holder.attempt},
          {"host", state->holder.host},
          {"process", state->holder.process},
          {"renewed", error ? 0 : renewed.time_since_epoch().count()}};
}

}  // namespace

std::optional<LeaseLook> look_at_lease(const fs::path& lock, double lease_seconds,
                                       double limit_seconds) {
  const BoundedAnswer answer = run_in_bounded_child(
      [&](const auto& write) { write(words_of_lease(lock, lease_seconds).dump()); },
      limit_seconds);
  if (!answer.in_time || answer.text.empty()) return std::nullopt;
  const Json said = parse_json(answer.text, "lease", 4);
  LeaseLook look;
  look.there = said.value("there", false);
  look.released = said.value("released", false);
  look.alive = said.value("alive", false);
  look.number = said.value("number", 0);
  look.host = said.value("host", "");
  look.process = said.value("process", int64_t{0});
  look.renewed = said.value("renewed", int64_t{0});
  return look;
}

}  // namespace longhaul::cluster
