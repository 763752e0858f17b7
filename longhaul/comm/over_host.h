#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// The base class of groups for memory of a device. `host` is a group of the same ranks
/// for host memory. Everything except operations on the caller's buffers goes to `host`.
class OverHost : public Communicator {
 public:
  explicit OverHost(std::shared_ptr<Communicator> host) : host_(std::move(host)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const std::string& name() const override { return host_->name(); }
  void progress() override { host_->progress(); }
  const CommOptions& limits() const override { return host_->limits(); }
  void abort(int exit_code) override { host_->abort(exit_code); }
  const CommCounts& counts() const override { return host_->counts(); }
  Ledger& ledger() override { return host_->ledger(); }
  std::vector<std::string> gather_strings(const std::string& mine) override {
    return host_->gather_strings(mine);
  }
  std::string broadcast_string(const std::string& value, int root) override {
    return host_->broadcast_string(value, root);
  }
  bool any(bool mine) override { return host_->any(mine); }

 protected:
  Communicator& host() const { return *host_; }

 private:
  std::shared_ptr<Communicator> host_;
};

/// Returns a pointer to a group that the caller keeps alive.
inline std::shared_ptr<Communicator> borrowed(Communicator& group) {
  return {&group, [](Communicator*) {}};
}

}  // namespace longhaul::comm
