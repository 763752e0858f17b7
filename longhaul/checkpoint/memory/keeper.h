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
#include "longhaul/run/node_memory.h"

namespace longhaul::checkpoint {

struct KeeperOptions {
  fs::path dir;     ///< the directory of memory_directory(); made when absent
  std::string run;  ///< the run's key; the same on all ranks
  int attempt = 1;
  Json layout;      ///< recorded for information
  int threads = 1;  ///< threads that copy
  /// Whether an earlier attempt's files have to stay until the first step is kept; the
  /// second slot then takes their memory.
  bool replaces = false;
  std::string machine = comm::machine_name();
};

/// Returns for each rank the rank of another machine that holds a copy of its part: the
/// copies of a machine's ranks are dealt to the ranks of the next machine. Returns
/// nothing where there is only one machine.
std::vector<int> choose_holders(const std::vector<std::string>& machines);

/// The time that a call of keep() took on the training thread.
struct KeepReport {
  double seconds = 0.0;
  double waited = 0.0;  ///< seconds of waiting for other ranks and the last step's copy
  /// False if state.json has outgrown the bytes that were reserved for it, so that the
  /// step is not kept.
  bool whole = true;
};

/// The memory that kept steps take on this machine.
struct MemoryUse {
  uint64_t own_bytes = 0;    ///< parts of the machine's own ranks, for one slot
  uint64_t other_bytes = 0;  ///< copies of the neighbour's parts, for one slot
  int machines = 1;
};

/// Keeps the newest state of each rank in its machine's memory and in a neighbour
/// machine's memory. Two slots alternate; a slot is written only when all ranks have the
/// other slot whole, in both copies. So at any moment, whichever machine dies, one step
/// is whole. keep() copies and hashes on this rank. The message to the neighbour is sent
/// beside training, whenever the owner of the communicator waits for something. The
/// thread that owns the communicator calls all functions. The files stay when the process
/// ends, unless remove() was called.
class MemoryKeeper {
 public:
  /// Makes the files for tensors like these and a state.json of about `state_bytes`.
  /// Throws ConfigError with numbers where this machine has too little memory, and
  /// TemporaryError where the memory runs out while the files are made; nothing is left
  /// of the files then. Collective.
  MemoryKeeper(KeeperOptions options, const std::vector<StateTensor>& tensors,
               uint64_t state_bytes, comm::Communicator& world);
  ~MemoryKeeper();

  /// Keeps a step. The tensors are the constructor's, with other values; the state is
  /// rank 0's. Collective.
  KeepReport keep(int64_t step, const std::string& state,
                  const std::vector<StateTensor>& tensors);
  /// Waits until the copies of this rank's state, and those that it holds, are whole.
  void settle();
  /// Changes the run's key (renew_run_key), which is written into steps that are kept
  /// from now on.
  void set_run(std::string run) { options_.run = std::move(run); }
  /// Waits for messages under way, and removes all that is kept of the run on this
  /// machine. Collective.
  void remove();
  const MemoryUse& use() const { return use_; }

 private:
  struct Source;  // a rank whose copies are kept here
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
  std::optional<run::DirectoryHold> hold_;
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
