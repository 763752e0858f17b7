#include "longhaul/device/tensor_group.h"

#include <fmt/format.h>

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/device_communicator.h"
#include "longhaul/comm/device_wait.h"
#include "longhaul/device/plugin.h"
#include "longhaul/tensor/buffer_of.h"

namespace longhaul::device {
namespace {

/// Calls the library. Its error becomes one that names the operation.
template <typename Function>
auto call(comm::Communicator& group, const std::string& operation, Function function) {
  try {
    return function();
  } catch (const Error& error) {
    fail_temporary("comm",
                   "{}{} failed: {}; a rank, its device or its network is lost: look for "
                   "the first failure in the other ranks' logs",
                   group.ledger().where(), operation, error.message());
  }
}

class TensorWork : public comm::Work {
 public:
  TensorWork(TensorCollectives& library, TensorGroup& group, comm::OperationId id,
             int64_t operation)
      : library_(library),
        group_(group),
        entry_(group.ledger(), std::move(id)),
        operation_(operation) {}

  bool test() override {
    return ordered_ ||
           call(group_, entry_.id().text(), [&] { return library_.is_done(operation_); });
  }
  void order() override {
    if (ordered_) return;
    ordered_ = true;
    entry_.waits();
    call(group_, entry_.id().text(), [&] { library_.order(operation_); });
    entry_.ended();
  }
  void wait() override {
    const auto since = comm::Ledger::Clock::now();
    comm::wait_for_device([&] { return test(); },
                          [&] {
                            entry_.waits();
                            comm::check_wait(group_.ledger(), group_.limits(), since,
                                             [&] { return entry_.id().text(); });
                            group_.progress();
                          });
    order();
    call(group_, entry_.id().text(), [&] { library_.wait_for_device(); });
    entry_.waited(since);
  }

 private:
  TensorCollectives& library_;
  TensorGroup& group_;
  comm::OperationEntry entry_;
  int64_t operation_;
  bool ordered_ = false;
};

std::vector<int> ranks_of(comm::Communicator& host, int rank) {
  std::vector<int> ranks;
  for (const std::string& one : host.gather_strings(std::to_string(rank))) {
    ranks.push_back(std::stoi(one));
  }
  return ranks;
}

at::Tensor flat(const comm::ConstBuffer& buffer) {
  const at::Tensor whole = tensor::tensor_of(buffer);
  LH_ASSERT(whole.numel() == buffer.count, "a buffer of {} of a tensor's {} elements",
            buffer.count, whole.numel());
  return whole.detach().view(-1);
}

}  // namespace

TensorCollectives* plugin_groups(at::Device device) {
  if (device.type() != at::kPrivateUse1) return nullptr;
  void* const symbol = plugin_function(kPluginGroups);
  return symbol == nullptr ? nullptr
                           : reinterpret_cast<TensorCollectives* (*)()>(symbol)();
}

TensorGroup::TensorGroup(TensorCollectives& library, comm::Communicator& host,
                         std::unique_ptr<comm::Communicator> staged)
    : OverHost(comm::borrowed(host)),
      library_(library),
      staged_(std::move(staged)),
      place_{host.rank(), host.size()},
      group_(
          call(host, fmt::format("making the device's group of '{}'", host.name()), [&] {
            return library.make(host.name(), ranks_of(host, library.rank()),
                                host.limits().deadline_seconds);
          })) {}

comm::WorkPtr TensorGroup::start(comm::Request request) {
  using comm::Verb;
  const Verb verb = request.verb;
  ++counts_[verb].calls;
  if (verb == Verb::Barrier) return host().barrier();
  const int64_t sent = comm::sent_in_rings(request, place_);
  counts_[verb].bytes += sent;
  const bool offered = verb == Verb::AllReduce || verb == Verb::AllGather ||
                       verb == Verb::ReduceScatter || verb == Verb::Broadcast;
  if (!offered || request.in.tensor == nullptr || request.out.tensor == nullptr) {
    return staged_->start(std::move(request));
  }
  comm::VerbCount& sum = ledger().counts_of(name())[verb];
  ++sum.calls;
  sum.bytes += sent;
  const int64_t number = numbers_.next(verb);
  if (request.bytes() == 0) return std::make_unique<comm::DoneWork>();
  comm::OperationId id{verb, number, request.bytes(), name(), ledger().label(), place_};
  const int64_t operation = call(*this, id.text(), [&] {
    return library_.start(group_, verb, request.op, request.root, flat(request.in),
                          flat(request.out));
  });
  return std::make_unique<TensorWork>(library_, *this, std::move(id), operation);
}

std::unique_ptr<comm::Communicator> TensorGroup::split(int /*color*/, int /*key*/,
                                                       std::string name) {
  LH_ASSERT(false, "the device's group '{}' is not split for '{}'", this->name(), name);
  return nullptr;
}

}  // namespace longhaul::device
