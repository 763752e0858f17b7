#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "longhaul/comm/collectives.h"
#include "longhaul/comm/entry.h"
#include "longhaul/comm/transport.h"

namespace longhaul::comm {

/// A collective or a send_recv under way, as the rounds of its messages.
class Operation {
 public:
  Operation(OperationEntry entry, Program program, std::unique_ptr<Batch> batch, int tag,
            size_t max_message, Tally tally);
  /// Goes as far as is possible without waiting. Returns true if anything happened.
  bool advance();
  bool done() const { return done_; }
  OperationEntry& entry() { return entry_; }

 private:
  OperationEntry entry_;
  Program program_;
  std::unique_ptr<Batch> batch_;
  Round round_;
  int64_t rounds_ = 0;
  bool under_way_ = false;
  bool done_ = false;
};

/// Operations that one communicator has started and that have not ended, and its counts.
struct OperationQueue {
  /// The collectives stand in the order of the calls; only the first one is advanced.
  std::deque<std::shared_ptr<Operation>> collectives;
  std::vector<std::shared_ptr<Operation>> transfers;
  OperationNumbers numbers;
  CommCounts counts;
};

/// Drives all communicators of a rank together, since ranks may wait for operations of
/// different communicators in different orders. One thread owns an engine; the engine
/// checks that.
class Engine {
 public:
  void add(const std::shared_ptr<OperationQueue>& queue);
  /// Throws unless the thread that first called this calls it.
  void check_thread();
  /// Advances every operation once. Returns true if anything happened. Errors name their
  /// operation.
  bool progress();
  /// Waits for the operation: polls, then yields, then sleeps between polls. Throws
  /// TemporaryError when the deadline passes or the launcher ends the job.
  void wait(Operation& operation, const CommOptions& options);
  Ledger& ledger() { return ledger_; }

 private:
  void advance(Operation& operation, bool& moved);
  std::vector<std::weak_ptr<OperationQueue>> queues_;
  Ledger ledger_;
  std::thread::id owner_;
};

}  // namespace longhaul::comm
