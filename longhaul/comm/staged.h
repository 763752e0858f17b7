#pragma once

#include <memory>
#include <string>
#include <vector>

#include "longhaul/comm/collectives.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/comm/options.h"
#include "longhaul/comm/transport.h"

namespace longhaul::comm {

class Engine;
struct OperationQueue;

/// A communicator whose verbs are rounds of messages over a Transport: the form that the
/// self, fake and MPI backends share. Collectives of one communicator run one after the
/// other in the order of the calls; whoever waits for one drives all communicators of
/// this process. send_recv starts at once and may overtake collectives.
class StagedCommunicator final : public Communicator {
 public:
  /// `engine` is shared by all communicators of a rank; null makes a new one.
  StagedCommunicator(std::unique_ptr<Transport> transport, std::string name,
                     const CommOptions& options,
                     std::shared_ptr<Engine> engine = nullptr);
  /// Frees nothing of the backend: that would be a collective.
  ~StagedCommunicator() override;

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }
  const std::string& name() const override { return name_; }
  WorkPtr all_reduce(Buffer buffer, ReduceOp op) override;
  WorkPtr all_gather(ConstBuffer in, Buffer out) override;
  WorkPtr reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) override;
  WorkPtr all_to_all(ConstBuffer in, Buffer out) override;
  WorkPtr broadcast(Buffer buffer, int root) override;
  WorkPtr send_recv(std::vector<Transfer> transfers) override;
  WorkPtr barrier() override;
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override;
  void progress() override;
  const CommOptions& limits() const override { return options_; }
  void abort(int exit_code) override;
  const CommCounts& counts() const override;
  Ledger& ledger() override;

 private:
  WorkPtr start(Verb verb, size_t bytes, Program program);

  std::shared_ptr<Transport> transport_;
  std::string name_;
  CommOptions options_;
  GroupRank group_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<OperationQueue> queue_;
  CommCounts& group_counts_;  ///< the ledger's, for this name
};

}  // namespace longhaul::comm
