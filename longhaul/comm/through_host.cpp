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
  void* device = nullptr;  ///< where a result is copied to; null: nothing is copied
};
using Stands = std::vector<Stand>;

class HostWork : public Work {
 public:
  HostWork(std::shared_ptr<const DeviceCopies> copies, std::unique_ptr<Stands> stands,
           WorkPtr work)
      : copies_(std::move(copies)), stands_(std::move(stands)), work_(std::move(work)) {}
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
      if (stand.device == nullptr || stand.bytes.empty()) continue;
      copies_->to_device(stand.device, stand.bytes.data(), stand.bytes.size());
    }
    stands_ = nullptr;
  }

  std::shared_ptr<const DeviceCopies> copies_;
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
      request.out = read(*stands, request.in, sends_only ? nullptr : request.out.data);
      request.in = request.out;
    } else {
      request.in = read(*stands, request.in, nullptr);
      request.out = room(*stands, request.out);
    }
    for (Transfer& t : request.transfers) {
      t.buffer = t.kind == Transfer::Kind::Send ? read(*stands, t.buffer, nullptr)
                                                : room(*stands, t.buffer);
    }
    return std::make_unique<HostWork>(copies_, std::move(stands),
                                      host().start(std::move(request)));
  }
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return std::make_unique<ThroughHost>(host().split(color, key, std::move(name)),
                                         copies_);
  }

 private:
  /// Copies bytes of the device into a new Stand. After the operation the Stand is copied
  /// to `result` on the device, unless that is null. The bytes of a Stand do not move
  /// when others are added.
  Buffer read(Stands& stands, const ConstBuffer& from, void* result) const {
    const Buffer here = room(stands, {result, from.count, from.dtype});
    if (from.count > 0) copies_->to_host(here.data, from.data, from.bytes());
    return here;
  }
  static Buffer room(Stands& stands, const Buffer& result) {
    Stand& stand =
        stands.emplace_back(std::vector<std::byte>(result.bytes()), result.data);
    return {stand.bytes.data(), result.count, result.dtype};
  }

  std::shared_ptr<const DeviceCopies> copies_;
};

}  // namespace

std::unique_ptr<Communicator> through_host(Communicator& host, DeviceCopies copies) {
  return std::make_unique<ThroughHost>(
      borrowed(host), std::make_shared<const DeviceCopies>(std::move(copies)));
}

}  // namespace longhaul::comm
