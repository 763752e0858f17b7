#include "longhaul/comm/through_host.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/comm/arguments.h"
#include "longhaul/comm/options.h"

namespace longhaul::comm {
namespace {

/// Host memory that stands in for one buffer of the device.
struct Stand {
  std::vector<std::byte> bytes;
  void* device = nullptr;  ///< where the result goes; null: nowhere
};
using Stands = std::vector<Stand>;

class HostWork : public Work {
 public:
  HostWork(std::shared_ptr<const DeviceCopies> copies, std::unique_ptr<Stands> stands,
           WorkPtr work)
      : copies_(std::move(copies)), stands_(std::move(stands)), work_(std::move(work)) {}
  /// Peers may yet write to the memory of what was left by an error.
  ~HostWork() override {
    if (stands_ != nullptr && !work_->test()) [[maybe_unused]]
      auto* left = stands_.release();
  }

  void wait() override {
    work_->wait();
    finish();
  }
  bool test() override {
    if (!work_->test()) return false;
    finish();
    return true;
  }

 private:
  void finish() {
    if (stands_ == nullptr) return;
    for (const Stand& stand : *stands_) {
      if (stand.device == nullptr || stand.bytes.empty()) continue;
      copies_->to_device(stand.device, stand.bytes.data(), stand.bytes.size());
    }
    stands_ = nullptr;
  }

  std::shared_ptr<const DeviceCopies> copies_;
  std::unique_ptr<Stands> stands_;
  WorkPtr work_;
};

class ThroughHost final : public Communicator {
 public:
  ThroughHost(std::shared_ptr<Communicator> host,
              std::shared_ptr<const DeviceCopies> copies)
      : host_(std::move(host)), copies_(std::move(copies)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const std::string& name() const override { return host_->name(); }

  WorkPtr all_reduce(Buffer buffer, ReduceOp op) override {
    check_buffer("all_reduce", buffer);
    auto stands = std::make_unique<Stands>();
    const Buffer here = read(*stands, buffer, buffer.data);
    return work(std::move(stands), host_->all_reduce(here, op));
  }
  WorkPtr all_gather(ConstBuffer in, Buffer out) override {
    check_pair("all_gather", in, 1, out, size());
    auto stands = std::make_unique<Stands>();
    const Buffer mine = read(*stands, in, nullptr);
    const Buffer result = room(*stands, out);
    return work(std::move(stands), host_->all_gather(mine, result));
  }
  WorkPtr reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) override {
    check_pair("reduce_scatter", in, size(), out, 1);
    auto stands = std::make_unique<Stands>();
    const Buffer mine = read(*stands, in, nullptr);
    const Buffer result = room(*stands, out);
    return work(std::move(stands), host_->reduce_scatter(mine, result, op));
  }
  WorkPtr all_to_all(ConstBuffer in, Buffer out) override {
    check_all_to_all(in, out, size());
    auto stands = std::make_unique<Stands>();
    const Buffer mine = read(*stands, in, nullptr);
    const Buffer result = room(*stands, out);
    return work(std::move(stands), host_->all_to_all(mine, result));
  }
  WorkPtr broadcast(Buffer buffer, int root) override {
    check_buffer("broadcast", buffer);
    auto stands = std::make_unique<Stands>();
    const Buffer here = read(*stands, buffer, rank() == root ? nullptr : buffer.data);
    return work(std::move(stands), host_->broadcast(here, root));
  }
  WorkPtr send_recv(std::vector<Transfer> transfers) override {
    check_transfers(*this, transfers);
    auto stands = std::make_unique<Stands>();
    for (Transfer& t : transfers) {
      t.buffer = t.kind == Transfer::Kind::Send ? read(*stands, t.buffer, nullptr)
                                                : room(*stands, t.buffer);
    }
    return work(std::move(stands), host_->send_recv(std::move(transfers)));
  }
  WorkPtr barrier() override { return host_->barrier(); }
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return std::make_unique<ThroughHost>(host_->split(color, key, std::move(name)),
                                         copies_);
  }
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

 private:
  /// A copy of the device's bytes; the vector of a stand does not move with it.
  Buffer read(Stands& stands, const ConstBuffer& from, void* result) const {
    Stand& stand = stands.emplace_back();
    stand.bytes.resize(from.bytes());
    stand.device = result;
    if (from.count > 0) copies_->to_host(stand.bytes.data(), from.data, from.bytes());
    return {stand.bytes.data(), from.count, from.dtype};
  }
  static Buffer room(Stands& stands, const Buffer& to) {
    Stand& stand = stands.emplace_back();
    stand.bytes.resize(to.bytes());
    stand.device = to.data;
    return {stand.bytes.data(), to.count, to.dtype};
  }
  WorkPtr work(std::unique_ptr<Stands> stands, WorkPtr on_host) const {
    return std::make_unique<HostWork>(copies_, std::move(stands), std::move(on_host));
  }

  std::shared_ptr<Communicator> host_;
  std::shared_ptr<const DeviceCopies> copies_;
};

}  // namespace

std::unique_ptr<Communicator> through_host(Communicator& host, DeviceCopies copies) {
  // The caller keeps it alive.
  std::shared_ptr<Communicator> borrowed(&host, [](Communicator*) {});
  return std::make_unique<ThroughHost>(
      std::move(borrowed), std::make_shared<const DeviceCopies>(std::move(copies)));
}

}  // namespace longhaul::comm
