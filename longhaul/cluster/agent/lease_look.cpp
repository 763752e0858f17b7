#include "longhaul/cluster/agent/lease_look.h"

#include <system_error>

#include "longhaul/base/json.h"
#include "longhaul/cluster/process/bounded_child.h"
#include "longhaul/system/owner_lock.h"

namespace longhaul::cluster {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LeaseLook, there, released, alive, number,
                                                host, process, renewed)

namespace {

LeaseLook read_lease(const fs::path& lock, double lease_seconds) {
  system::OwnerLockOptions options;
  options.lease_seconds = lease_seconds;
  const auto state = system::OwnerLock::look(lock, options);
  if (!state) return {};
  std::error_code error;
  const auto renewed = fs::last_write_time(lock, error);
  return {.there = true,
          .released = state->holder.released,
          .alive = state->alive,
          .number = state->holder.attempt,
          .host = state->holder.host,
          .process = state->holder.process,
          .renewed = error ? 0 : renewed.time_since_epoch().count()};
}

}  // namespace

std::optional<LeaseLook> look_at_lease(const fs::path& lock, double lease_seconds,
                                       double limit_seconds) {
  const BoundedAnswer answer = run_in_bounded_child(
      [&](const auto& write) { write(json_text(Json(read_lease(lock, lease_seconds)))); },
      limit_seconds);
  if (!answer.in_time || answer.text.empty()) return std::nullopt;
  return parse_json(answer.text, "lease", 4).get<LeaseLook>();
}

}  // namespace longhaul::cluster
