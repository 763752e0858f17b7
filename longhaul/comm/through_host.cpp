#include "longhaul/comm/through_host.h"

#include <string>
#include <utility>
#include <vector>

#include "longhaul/comm/over_host.h"

namespace longhaul::comm {
namespace {

/// Host memory that stands in for one buffer of the device.
struct Stand {
  std::vector<std::byte> bytes;
  /// Copies the result to the device; empty: nothing is copied.
  std::function<void(const void*)> write = {};
};
using Stands = std::vector<Stand>;

class HostWork : public Work {
 public:
  HostWork(std::unique_ptr<Stands> stands, WorkPtr work)
      : stands_(std::move(stands)), work_(std::move(work)) {}
  /// Does not free memory that peers may still write to if an error has left the
  /// operation under way.
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
      if (stand.write) stand.write(stand.bytes.data());
    }
    stands_ = nullptr;
  }

  std::unique_ptr<Stands> stands_;
  WorkPtr work_;
};

class ThroughHost final : public OverHost {
 public:
  ThroughHost(std::shared_ptr<Communicator> host,
              std::shared_ptr<const DeviceCopies> copies)
      : OverHost(std::move(host)), copies_(std::move(copies)) {}

  WorkPtr start(Request request) override {
    auto stands = std::make_unique<Stands>();
    if (request.verb == Verb::AllReduce || request.verb == Verb::Broadcast) {
      const bool sends_only = request.verb == Verb::Broadcast && rank() == request.root;
      const ConstBuffer in = request.in;
      request.out = sends_only ? room(*stands, in) : result(*stands, request.out);
      read(in, request.out);
      request.in = request.out;
    } else {
      const ConstBuffer in = request.in;
      const Buffer here = room(*stands, in);
      read(in, here);
      request.in = here;
      request.out = result(*stands, request.out);
    }
    for (Transfer& t : request.transfers) {
      const Buffer device = t.buffer;
      const bool sends = t.kind == Transfer::Kind::Send;
      t.buffer = sends ? room(*stands, device) : result(*stands, device);
      if (sends) read(device, t.buffer);
    }
    return std::make_unique<HostWork>(std::move(stands),
                                      host().start(std::move(request)));
  }
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return std::make_unique<ThroughHost>(host().split(color, key, std::move(name)),
                                         copies_);
  }

 private:
  void read(const ConstBuffer& device, const Buffer& here) const {
    if (device.count > 0) copies_->to_host(here.data, device);
  }
  /// Returns a new Stand's memory, which does not move when others are added.
  static Buffer room(Stands& stands, const ConstBuffer& device) {
    Stand& stand = stands.emplace_back(std::vector<std::byte>(device.bytes()));
    return {stand.bytes.data(), device.count, device.dtype};
  }
  /// Returns the memory of a new Stand, which is copied to `device` after the operation.
  Buffer result(Stands& stands, const Buffer& device) const {
    const Buffer here = room(stands, device);
    if (device.count > 0) stands.back().write = copies_->to_device(device);
    return here;
  }

  std::shared_ptr<const DeviceCopies> copies_;
};

}  // namespace

std::unique_ptr<Communicator> through_host(Communicator& host, DeviceCopies copies) {
  return std::make_unique<ThroughHost>(
      borrowed(host), std::make_shared<const DeviceCopies>(std::move(copies)));
}

}  // namespace longhaul::comm
