#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/comm/any_memory.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/comm/options.h"
#include "longhaul/rehearsal/script.h"

namespace longhaul::rehearsal {

/// Where the ranks of a rehearsal meet when they split groups, each on a thread of its
/// own. Any thread may call it.
class Board {
 public:
  explicit Board(int ranks);

  /// Returns all groups. Must not be called while ranks still split.
  const std::vector<GroupMembers>& groups() const { return groups_; }
  GroupMembers group(int number);
  /// Returns the number of the group that a rank is in after call number `call` of split
  /// on group `whole`. Waits for all ranks of `whole`. Throws the error of give_up() once
  /// that was called.
  int split(int whole, int call, int rank, int color, int key, const std::string& name);
  /// Ends the waits of all ranks, since one of them has failed with this error.
  void give_up(std::exception_ptr error);

 private:
  struct Meeting {
    struct Part {
      int color, key, rank;
      std::string name;
    };
    std::vector<Part> parts;
    std::map<int, int> groups;  ///< by rank, once all have come
  };

  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<GroupMembers> groups_;
  std::map<std::pair<int, int>, Meeting> meetings_;
  std::exception_ptr error_;
};

/// One rank of a rehearsal, as its communicators know it. While `script` is not null, its
/// operations are written there.
struct Player {
  int rank = 0;
  Board* board = nullptr;
  Script* script = nullptr;
  bool of_host = false;  ///< the groups take memory of the host alone
  std::function<bool(const void*)> on_device;  ///< tells memory of the device
  std::vector<int> groups = {};                ///< of the board, in the order of joining
  comm::Ledger ledger = {};
  comm::CommOptions limits = {};
};

/// A group whose operations are recorded and end at once. What they leave in memory of
/// the host is what they would leave if all ranks had brought the same. Takes memory of
/// the host; AnyRecordedGroup takes memory of the device as well.
class RecordedGroup : public comm::Communicator, public comm::Played {
 public:
  /// Returns the group of all ranks of the player's board.
  static std::shared_ptr<comm::Communicator> world(std::shared_ptr<Player> player);
  /// Returns a group of the player's board, of the class that the player wants.
  static std::unique_ptr<comm::Communicator> make(std::shared_ptr<Player> player,
                                                  int number);

  RecordedGroup(std::shared_ptr<Player> player, int number);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }
  comm::WorkPtr start(comm::Request request) override;
  std::unique_ptr<comm::Communicator> split(int color, int key,
                                            std::string name) override;
  bool transfers_in_order() const override { return true; }
  const comm::CommOptions& limits() const override { return player_->limits; }
  void abort(int exit_code) override;
  const comm::CommCounts& counts() const override { return counts_; }
  comm::Ledger& ledger() override { return player_->ledger; }

 private:
  std::shared_ptr<Player> player_;
  int number_;  ///< among the groups of the board
  int local_;   ///< among the groups of the player
  int rank_ = 0;
  int size_ = 1;
  std::string name_;
  int splits_ = 0;
  comm::CommCounts counts_;
};

class AnyRecordedGroup : public RecordedGroup, public comm::AnyMemory {
 public:
  using RecordedGroup::RecordedGroup;
};

}  // namespace longhaul::rehearsal
