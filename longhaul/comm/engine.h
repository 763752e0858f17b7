#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "longhaul/comm/collectives.h"
#include "longhaul/comm/transport.h"

namespace longhaul::comm {

/// A collective or a group of transfers under way.
class Operation {
 public:
  Operation(std::unique_ptr<Program> program, std::unique_ptr<Batch> batch, int tag,
            size_t max_message, std::string description);
  /// Goes as far as it can without waiting. True if anything happened.
  bool advance();
  bool done() const { return done_; }
  /// "all_reduce number 7 (4096 bytes) on 'dp', rank 1 of 2".
  const std::string& description() const { return description_; }

 private:
  std::unique_ptr<Program> program_;
  std::unique_ptr<Batch> batch_;
  Round round_;
  std::string description_;
  bool under_way_ = false;
  bool done_ = false;
};

/// What one communicator has started and not ended.
struct OperationQueue {
  std::deque<std::shared_ptr<Operation>> collectives;  ///< only the first is advanced
  std::vector<std::shared_ptr<Operation>> transfers;
  int64_t started = 0;  ///< collectives
  int64_t transfers_started = 0;
};

/// Drives every communicator of a rank: ranks may wait for operations of different
/// communicators in different orders. Owned by one thread, and checks that.
class Engine {
 public:
  void add(const std::shared_ptr<OperationQueue>& queue);
  /// Advances everything once. True if anything happened.
  bool progress();
  /// Polls, then yields, then sleeps, until the operation ends or its deadline passes.
  void wait(const Operation& operation, double deadline_seconds);

 private:
  void check_thread();
  std::vector<std::weak_ptr<OperationQueue>> queues_;
  std::thread::id owner_;
};

}  // namespace longhaul::comm
