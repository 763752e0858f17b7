#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/checkpoint/memory/part.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/comm/hosts.h"

namespace longhaul::checkpoint {

struct KeeperOptions {
  fs::path dir;     ///< memory_directory(); made when absent
  std::string run;  ///< the run's key; the same on all ranks
  int attempt = 1;
  Json layout;      ///< informative
  int threads = 1;  ///< that copy
  /// Parts of an earlier attempt have to stay until the first step is kept: the second
  /// slot takes their memory then.
  bool replaces = false;
  std::string machine = comm::machine_name();
};

/// For each rank the rank of another machine that holds a copy of its part: the ranks of
/// a machine share theirs out over those of the next one. Empty where there is one
/// machine only.
std::vector<int> choose_holders(const std::vector<std::string>& machines);

/// What a call of keep() took: seconds of the training thread.
struct KeepReport {
  double seconds = 0.0;
  double waited = 0.0;  ///< of them for the ranks, and for the copy before
  /// False: state.json has outgrown its room, and the step is not kept.
  bool whole = true;
};

/// What the parts take on this machine.
struct MemoryUse {
  uint64_t own_bytes = 0;    ///< of its ranks, per slot
  uint64_t other_bytes = 0;  ///< of the neighbours' copies, per slot
  int machines = 1;
};

/// Keeps the newest state of each rank in its machine's memory and in a neighbour's. Two
/// slots alternate, and one is written only when all ranks have the other whole, both
/// copies: at any moment, whoever dies, one step is whole.
/// keep() copies and hashes on this rank; the message to the neighbour goes beside
/// training, driven by whatever the communicator's owner waits for. All functions belong
/// to that thread. What is here stays when the process ends, unless remove() was called.
class MemoryKeeper {
 public:
  /// Makes the files for tensors like these and a state.json of about `state_bytes`.
  /// ConfigError with numbers where this machine has not the memory, TemporaryError where
  /// it turns out so; nothing is left of it then. Collective.
  MemoryKeeper(KeeperOptions options, const std::vector<StateTensor>& tensors,
               uint64_t state_bytes, comm::Communicator& world);
  ~MemoryKeeper();

  /// Keeps a step. The tensors are those of the constructor, with other values; rank 0's
  /// state counts. Collective.
  KeepReport keep(int64_t step, const std::string& state,
                  const std::vector<StateTensor>& tensors);
  /// Waits until the copies of this rank, and those it holds, are whole.
  void settle();
  /// Steps kept from now on are of another past; see renew_run_key.
  void set_run(std::string run) { options_.run = std::move(run); }
  /// Waits for what is under way, and removes all parts of the run here. Collective.
  void remove();
  const MemoryUse& use() const { return use_; }

 private:
  struct Source;  // a neighbour whose copies are here
  struct Slot {
    PartWriter own;
    std::vector<PartWriter> copies;  ///< in the order of sources_
  };
  void exchange_shapes();
  void check_room() const;
  void make_slot(size_t number);
  Slot& next_slot();
  void start_messages(const Slot& slot);

  KeeperOptions options_;
  PartPlan plan_;
  PartShape shape_;
  std::unique_ptr<comm::Communicator> group_;
  std::vector<std::string> machines_;  ///< by rank
  int holder_ = -1;
  std::vector<Source> sources_;
  MemoryUse use_;
  std::array<std::optional<Slot>, 2> slots_;
  size_t kept_ = 0;
  comm::WorkPtr copy_;
};

}  // namespace longhaul::checkpoint
