#pragma once

#include <memory>
#include <string>

#include "longhaul/comm/collectives.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/comm/options.h"
#include "longhaul/comm/transport.h"

namespace longhaul::comm {

class Engine;
struct OperationQueue;

/// A communicator whose operations are rounds of messages over a Transport: the backends
/// of one process and of MPI, and the ranks of tests. Collectives of one communicator run
/// one after the other in the order of the calls. A rank that waits for an operation
/// drives all communicators of its process. A send_recv starts at once and may overtake
/// collectives.
class StagedCommunicator final : public Communicator {
 public:
  /// Makes a communicator over `transport`. All communicators of a rank share an engine;
  /// with null the communicator makes a new engine.
  StagedCommunicator(std::unique_ptr<Transport> transport, std::string name,
                     const CommOptions& options,
                     std::shared_ptr<Engine> engine = nullptr);
  /// Frees nothing of the backend, because freeing a group is a collective.
  ~StagedCommunicator() override;

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }
  const std::string& name() const override { return name_; }
  WorkPtr start(Request request) override;
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override;
  void progress() override;
  const CommOptions& limits() const override { return options_; }
  void abort(int exit_code) override;
  const CommCounts& counts() const override;
  Ledger& ledger() override;

 private:
  std::shared_ptr<Transport> transport_;
  std::string name_;
  CommOptions options_;
  GroupRank group_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<OperationQueue> queue_;
  CommCounts& group_counts_;  ///< the ledger's counts for groups of this name
};

}  // namespace longhaul::comm
