#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "longhaul/comm/collectives.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/comm/options.h"
#include "longhaul/comm/transport.h"
#include "longhaul/run/rank_record.h"

namespace longhaul::comm {

/// Which operation it is: for messages and the record.
struct OperationId {
  Verb verb;
  int64_t number;
  size_t bytes;
  std::string group;
  std::string label;
  GroupRank place;
  OperationName name() const { return {group, verb_name(verb), number, bytes, label}; }
  /// "all_reduce number 7 (4096 bytes) on 'dp' [gradient bucket 3], rank 1 of 2,"
  std::string text() const;
};

/// A collective or a group of transfers under way.
class Operation {
 public:
  Operation(OperationId id, Program program, std::unique_ptr<Batch> batch, int tag,
            size_t max_message, Tally tally);
  /// Goes as far as it can without waiting. True if anything happened. Errors name the
  /// operation.
  bool advance();
  bool done() const { return done_; }
  const OperationId& id() const { return id_; }
  /// Where it stands in the rank's record.
  void enter(RankRecord& record) { ticket_ = record.started(id_.name()); }
  uint64_t ticket() const { return ticket_; }

 private:
  OperationId id_;
  Program program_;
  std::unique_ptr<Batch> batch_;
  Round round_;
  int64_t rounds_ = 0;
  uint64_t ticket_ = 0;  ///< 0: none was attached
  bool under_way_ = false;
  bool done_ = false;
};

/// What one communicator has started and not ended, and what it has sent.
struct OperationQueue {
  std::deque<std::shared_ptr<Operation>> collectives;  ///< only the first is advanced
  std::vector<std::shared_ptr<Operation>> transfers;
  int64_t started = 0;  ///< collectives
  int64_t transfers_started = 0;
  CommCounts counts;
};

/// Drives every communicator of a rank: ranks may wait for operations of different
/// communicators in different orders. Owned by one thread, and checks that.
class Engine {
 public:
  void add(const std::shared_ptr<OperationQueue>& queue);
  /// Counts a new operation and enters it into the record where there is one.
  void begin(Operation& operation);
  /// Advances everything once. True if anything happened.
  bool progress();
  /// Polls, then yields, then sleeps, until the operation ends, its deadline passes or
  /// the launcher ends the job.
  void wait(const Operation& operation, const CommOptions& options);
  Ledger& ledger() { return ledger_; }

 private:
  void check_thread();
  void advance(Operation& operation, bool& moved);
  std::vector<std::weak_ptr<OperationQueue>> queues_;
  Ledger ledger_;
  std::thread::id owner_;
};

/// The error of an operation that does not end: after so many seconds of waiting.
[[noreturn]] void fail_deadline(const Ledger& ledger, const std::string& operation,
                                double deadline_seconds, double waited);
/// The error of an operation while which the launcher ends the job.
[[noreturn]] void fail_job_ends(const Ledger& ledger, const std::string& operation,
                                const std::string& why);

}  // namespace longhaul::comm
