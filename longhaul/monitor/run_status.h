#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul::monitor {

struct DeviceStatus {
  std::string name;
  double memory_used = 0.0;  ///< bytes
  double memory_total = 0.0;
  double busy = -1.0;  ///< 0 to 1; negative: not known
};

struct NodeStatus {
  std::string name;
  std::string state;  ///< "up", "spare", "excluded", "lost"
  std::vector<int64_t> ranks;
  double memory_used = 0.0;
  double memory_total = 0.0;
  double cpu_busy = -1.0;  ///< 0 to 1; negative: not known
  std::vector<DeviceStatus> devices;
};

struct RankStatus {
  int64_t rank = 0;
  std::string node;
  std::string coordinates;
  std::string phase;
  int64_t step = 0;
  double busy_seconds = 0.0;  ///< of the last step, without waiting for others
  double wall_seconds = 0.0;
  std::string waits_for;
  double waits_seconds = 0.0;
};

/// status.json of a supervisor. All texts are plain (plain_text.h).
struct RunStatus {
  std::string state;
  double since = 0.0;  ///< seconds since 1970
  double updated = 0.0;
  std::string job;
  std::string host;
  int64_t process = 0;
  int64_t restarts = 0;
  int64_t max_restarts = 0;
  std::string cause;
  std::vector<NodeStatus> nodes;
  std::vector<RankStatus> ranks;
};

/// What the object says; a member that is absent or of another type is left at its
/// default, so that other versions can be read.
RunStatus parse_status(const Json& json);

// Members of an outside object, or the default when absent or of another type.
double number_at(const Json& object, const char* key, double otherwise = 0.0);
int64_t integer_at(const Json& object, const char* key, int64_t otherwise = 0);
/// Plain.
std::string text_at(const Json& object, const char* key, size_t longest = 400);

}  // namespace longhaul::monitor
