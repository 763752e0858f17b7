#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"

namespace longhaul::rehearsal {

/// Where an operation waits for its turn. Operations of one group and lane run in the
/// order of their calls, as in comm::DeviceCommunicator.
enum class Lane : uint8_t { Host, Collectives, Transfers };

/// One message of a send_recv.
struct Message {
  int32_t peer = 0;  ///< rank in the group
  bool sends = false;
  int64_t bytes = 0;
  bool operator==(const Message&) const = default;
};

/// An operation between ranks that a rank has started.
struct Operation {
  int32_t group = 0;  ///< number of the group among those of the rank
  Lane lane = Lane::Collectives;
  comm::Verb verb = comm::Verb::Barrier;
  format::DType dtype = format::DType::U8;
  comm::ReduceOp op = comm::ReduceOp::Sum;
  int32_t root = 0;
  int64_t bytes = 0;
  int32_t step = 0;
  int32_t phase = 0;  ///< number among Script::texts
  int32_t label = 0;  ///< number among Script::texts
  std::vector<Message> messages = {};
};

/// What a rank does with an operation: starts it, puts it before all that its device
/// computes from now on, or waits for it on the host. With Drain the host waits for its
/// device, and so for all operations that were put before what the device computes.
struct Act {
  enum class Kind : uint8_t { Start, Order, Wait, Drain };
  Kind kind = Kind::Start;
  uint32_t operation = 0;  ///< not of Drain
};

/// Everything that a rank does with other ranks, in the order of its host.
struct Script {
  std::vector<Operation> operations;
  std::vector<Act> acts;
  std::vector<std::string> texts;

  void add(Act::Kind kind, size_t operation) {
    acts.push_back({kind, static_cast<uint32_t>(operation)});
  }
  /// Starts an operation and returns its number.
  size_t start(Operation operation) {
    operations.push_back(std::move(operation));
    add(Act::Kind::Start, operations.size() - 1);
    return operations.size() - 1;
  }
  /// Returns the number of a text, which is kept once.
  int32_t number_of(const std::string& text);
};

/// A group of ranks.
struct GroupMembers {
  std::string name;
  std::vector<int> ranks;  ///< by rank in the group
};

/// A rank with what it does. Ranks that do the same share a script.
struct ScriptedRank {
  const Script* script = nullptr;
  std::vector<int> groups;  ///< the rank's groups, numbers among all groups
  std::string place;        ///< "pp 0 dp 1 cp 0 tp 3", for messages
};

/// Runs the ranks against each other, as the operations would run: each rank's host and
/// device go on until they wait for others. Returns what is wrong; nothing if all ranks
/// come to their end. Operations that do not match (in verb, bytes, dtype, sum or
/// maximum, root) are named before anything runs, with both operands. So are messages of
/// other sizes than the receiver expects. Ranks that wait for each other are named in
/// their circle. At last the order is compared in which ranks start the device's
/// collectives of groups that they share: it must be the same.
std::optional<std::string> find_mismatch(const std::vector<ScriptedRank>& ranks,
                                         const std::vector<GroupMembers>& groups);

}  // namespace longhaul::rehearsal
