#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "longhaul/comm/ledger.h"
#include "longhaul/comm/options.h"

namespace longhaul::comm {

/// A rank's place in a group.
struct GroupRank {
  int rank;
  int size;
};

/// What names an operation in messages and in the rank's record.
struct OperationId {
  Verb verb;
  int64_t number;
  size_t bytes;
  std::string group;
  std::string label;
  GroupRank place;
  run::OperationName name() const {
    return {group, verb_name(verb), number, bytes, label};
  }
  /// Returns the name for messages: "all_reduce number 7 (4096 bytes) on 'dp' [gradient
  /// bucket 3], rank 1 of 2,".
  std::string text() const;
};

/// Numbers the operations of one group. Transfers have numbers of their own, which differ
/// from rank to rank.
class OperationNumbers {
 public:
  int64_t next(Verb verb) {
    return ++(verb == Verb::SendRecv ? transfers_ : collectives_);
  }

 private:
  int64_t collectives_ = 0;
  int64_t transfers_ = 0;
};

/// An operation in the ledger and the record of its rank, from its start to its end.
/// Every backend keeps one entry for each operation. `ledger` outlives the entry.
class OperationEntry {
 public:
  /// Counts the operation as under way. Writes it into the record of the rank, if there
  /// is one. While a Polling lives, the operation belongs to the Polling and is not
  /// written.
  OperationEntry(Ledger& ledger, OperationId id);

  const OperationId& id() const { return id_; }
  /// Notes that the operation has ended.
  void ended();
  /// Notes that this rank now does nothing but wait for the operation. Later calls do
  /// nothing.
  void waits();
  /// Notes that the wait that began at `since` is over.
  void waited(Ledger::Clock::time_point since);

 private:
  run::RankRecord* record() const { return ticket_ == 0 ? nullptr : ledger_.record(); }

  Ledger& ledger_;
  OperationId id_;
  uint64_t ticket_ =
      0;  ///< the operation's ticket in the record; 0: the operation is not in the record
  bool noted_ = false;  ///< the record says that this rank waits
};

/// Throws TemporaryError, which names `operation`, if a wait that began at `since` must
/// not go on: it has lasted longer than its limit, or the launcher ends the job.
void check_wait(const Ledger& ledger, const CommOptions& limits,
                Ledger::Clock::time_point since,
                const std::function<std::string()>& operation);

}  // namespace longhaul::comm
