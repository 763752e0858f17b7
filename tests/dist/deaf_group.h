#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/comm/communicator.h"

namespace longhaul::testing {

/// A group whose sums are left out: every rank keeps its own values. Other verbs are not
/// expected of it.
class DeafGroup : public comm::Communicator {
 public:
  /// `group` must outlive this.
  explicit DeafGroup(comm::Communicator& group) : group_(group) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.name(); }
  comm::WorkPtr all_reduce(comm::Buffer, comm::ReduceOp) override {
    return std::make_unique<Nothing>();
  }
  comm::WorkPtr all_gather(comm::ConstBuffer, comm::Buffer) override { return no(); }
  comm::WorkPtr reduce_scatter(comm::ConstBuffer, comm::Buffer, comm::ReduceOp) override {
    return no();
  }
  comm::WorkPtr all_to_all(comm::ConstBuffer, comm::Buffer) override { return no(); }
  comm::WorkPtr broadcast(comm::Buffer, int) override { return no(); }
  comm::WorkPtr send_recv(std::vector<comm::Transfer>) override { return no(); }
  comm::WorkPtr barrier() override { return no(); }
  std::unique_ptr<comm::Communicator> split(int color, int key,
                                            std::string name) override {
    return group_.split(color, key, std::move(name));
  }
  void abort(int exit_code) override { group_.abort(exit_code); }
  const comm::CommCounts& counts() const override { return group_.counts(); }
  comm::Ledger& ledger() override { return group_.ledger(); }

 private:
  class Nothing : public comm::Work {
   public:
    void wait() override {}
    bool test() override { return true; }
  };
  [[noreturn]] static comm::WorkPtr no() {
    throw Error(ErrorKind::Internal, "tool", "a deaf group only leaves out sums");
  }

  comm::Communicator& group_;
};

}  // namespace longhaul::testing
