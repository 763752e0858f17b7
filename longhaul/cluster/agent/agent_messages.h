#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/cluster/health/health.h"
#include "longhaul/cluster/health/node_paths.h"

namespace longhaul::cluster {

// A supervisor and its agents exchange these messages. Each is one JSON object. An order
// goes from the supervisor to agents, and its field "order" holds kName. An answer has no
// such field. The fields that it does have tell its kind.

/// Ends the agent.
struct EndOrder {
  static constexpr const char* kName = "end";
};
inline void to_json(Json& json, const EndOrder&) { json = Json::object(); }

/// Sent before the start with the number `start`: the agent forgets its node's workers
/// and, with `records`, kills those that are left and removes their records.
struct ForgetOrder {
  static constexpr const char* kName = "forget";
  int64_t start = 0;
  bool records = true;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ForgetOrder, start, records)

/// Sends a signal to the workers of these ranks, or to all if no rank is named. If
/// `cause` is not 0, the signal has it as its value (Fleet::ask_to_end).
struct SignalOrder {
  static constexpr const char* kName = "signal";
  int number = 0;
  std::vector<int> ranks;
  int cause = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SignalOrder, number, ranks, cause)

/// Says once a second that the supervisor with this lease lives, and how many seconds lie
/// between two reports of an agent.
struct BeatOrder {
  static constexpr const char* kName = "beat";
  int lease = 0;
  double every = 0.0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(BeatOrder, lease, every)

/// Names the agent's place among those that replace a lost supervisor (-1: none), and the
/// command line of the supervisor that it then starts.
struct SucceedOrder {
  static constexpr const char* kName = "succeed";
  int turn = -1;
  std::vector<std::string> words;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SucceedOrder, turn, words)

/// Asks for a health check of the node.
struct HealthOrder {
  static constexpr const char* kName = "health";
  HealthOptions options;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HealthOrder, options)

/// Asks for stack traces of these ranks.
struct StacksOrder {
  static constexpr const char* kName = "stacks";
  std::vector<int> ranks;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StacksOrder, ranks)

/// Asks how the node sees the paths that the run needs.
struct PathsOrder {
  static constexpr const char* kName = "paths";
  std::vector<NeededPath> needed;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PathsOrder, needed)

inline constexpr const char* kOrderField = "order";

template <typename Order>
Json order_message(const Order& order) {
  Json message = order;
  message[kOrderField] = Order::kName;
  return message;
}

// Fields of the answers.
inline constexpr const char* kHelloField = "hello";    ///< first message: the node's name
inline constexpr const char* kDoorField = "door";      ///< the PeerNode of that node
inline constexpr const char* kHealthField = "health";  ///< HealthReport::to_json()
inline constexpr const char* kPathsField = "paths";    ///< PathViews, as PathsOrder lists
inline constexpr const char* kStacksField = "stacks";  ///< stack traces by rank
inline constexpr const char* kReportField = "report";  ///< NodeReport::to_json()
/// Beside a report: the `start` of the newest ForgetOrder, and lines for people.
inline constexpr const char* kStartField = "start";
inline constexpr const char* kNotesField = "notes";
/// Beside a report: seconds for which the agent has stood still since it began.
inline constexpr const char* kStoodField = "stood";

/// Returns an agent's regular answer.
inline Json report_message(Json report, int64_t start, std::vector<std::string> notes) {
  return {{kReportField, std::move(report)},
          {kStartField, start},
          {kNotesField, std::move(notes)}};
}

}  // namespace longhaul::cluster
