#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/comm/engine.h"
#include "longhaul/comm/nccl.h"
#include "longhaul/comm/nccl_api.h"

namespace longhaul::comm {

/// The group of nccl_group (nccl.h), over any implementation of the calls.
class NcclCommunicator final : public Communicator {
 public:
  /// Collective.
  NcclCommunicator(std::shared_ptr<NcclApi> api, std::shared_ptr<Communicator> bootstrap,
                   int device, const NcclOptions& options);
  /// Leaves NCCL's communicators to the end of the process: destroying them communicates.
  ~NcclCommunicator() override;

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  const std::string& name() const override { return bootstrap_->name(); }
  WorkPtr all_reduce(Buffer buffer, ReduceOp op) override;
  WorkPtr all_gather(ConstBuffer in, Buffer out) override;
  WorkPtr reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) override;
  WorkPtr all_to_all(ConstBuffer in, Buffer out) override;
  WorkPtr broadcast(Buffer buffer, int root) override;
  WorkPtr send_recv(std::vector<Transfer> transfers) override;
  WorkPtr barrier() override;
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override;
  void progress() override { bootstrap_->progress(); }
  void abort(int exit_code) override;
  const CommCounts& counts() const override { return counts_; }
  Ledger& ledger() override { return bootstrap_->ledger(); }
  std::vector<std::string> gather_strings(const std::string& mine) override;
  std::string broadcast_string(const std::string& value, int root) override;
  bool any(bool mine) override;

  struct Channel;  ///< one communicator of NCCL and the stream of its operations
  struct Shared;   ///< what Works need after their communicator is gone

 private:
  /// Counts, waits in the stream for the caller's, enqueues, and marks the end.
  WorkPtr start(Verb verb, size_t bytes, int64_t sent,
                const std::function<int(const Channel&)>& enqueue);

  std::shared_ptr<Communicator> bootstrap_;
  GroupRank place_;
  std::shared_ptr<Shared> shared_;
  CommCounts counts_;
  int64_t started_ = 0;
  int64_t transfers_started_ = 0;
};

}  // namespace longhaul::comm
