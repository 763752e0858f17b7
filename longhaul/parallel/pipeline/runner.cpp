#include "longhaul/parallel/pipeline/runner.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/layout/pipeline/messages.h"
#include "longhaul/tensor/buffer_of.h"
#include "longhaul/tensor/own_memory.h"

namespace longhaul::parallel {
namespace {

using Kind = layout::PipelineAction::Kind;

/// The number of sent messages whose memory is kept. If there are more, the device waits
/// for the end of the oldest, whose memory is freed then.
constexpr size_t kSendsKept = 2;

/// Records the time from its construction to its destruction, if there is a trace.
class Span {
 public:
  Span(Trace* trace, Trace::Lane lane, const layout::PipelineAction& action)
      : trace_(trace), lane_(lane) {
    if (trace_ == nullptr) return;
    name_ = to_string(action);
    begin_ = Trace::Clock::now();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (trace_ == nullptr) return;
    trace_->record(std::move(name_), lane_, begin_, Trace::Clock::now());
  }

 private:
  Trace* trace_;
  Trace::Lane lane_;
  std::string name_;
  Trace::Clock::time_point begin_;
};

/// A message under way. If `work` is null, its tensors have already arrived.
struct Parcel {
  layout::PipelineMessage message;
  nn::Tensors tensors;
  std::shared_ptr<comm::Work> work;  ///< shared by the messages of a slot
};

/// The tensors that this rank exchanges with its neighbours in one step.
class Exchange {
 public:
  Exchange(const layout::PipelinePlan& plan, PipelineStage& stage, comm::Communicator& pp,
           const BoundaryOptions& boundary, Trace* trace)
      : stage_(stage),
        pp_(pp),
        boundary_(boundary),
        trace_(trace),
        parcels_(std::make_unique<Parcels>()) {
    if (pp.transfers_in_order()) {
      slots_.emplace(plan, pp.rank());
    } else {
      receives_.emplace(plan, pp.rank());
    }
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  /// After a failure peers may still write to the memory of messages under way. The
  /// memory is leaked, since the process is about to end.
  ~Exchange() {
    if (finished_) return;
    [[maybe_unused]] const Parcels* given_up = parcels_.release();
  }

  /// Posts the receives that are due before action number `index`.
  void prepare(size_t index) {
    if (slots_) {
      if (index == 0) post_slots(0, {});
      return;
    }
    for (const layout::PipelineMessage& message : receives_->due(index)) {
      nn::Tensors buffers = room_for(message);
      auto work = start(comm::Transfer::Kind::Recv, message.from, buffers);
      add_incoming(message, std::move(buffers), std::move(work));
    }
  }

  /// Sends `output`, the result of action number `index`, if the action has a message.
  void pass(size_t index, const std::optional<layout::PipelineMessage>& message,
            const nn::Tensors& output) {
    nn::Tensors tensors;
    if (message) {
      check(*message, output);
      for (const at::Tensor& tensor : output) {
        tensors.push_back(tensor::in_own_memory(tensor.detach()));
      }
      if (message->to == message->from) {
        add_incoming(*message, std::exchange(tensors, {}), nullptr);
      }
    }
    if (slots_) {
      post_slots(index + 1, tensors);
    } else if (!tensors.empty()) {
      auto work = start(comm::Transfer::Kind::Send, message->to, tensors);
      parcels_->sent.push_back({*message, std::move(tensors), std::move(work)});
    }
  }

  /// Waits for `message` and returns its tensors.
  nn::Tensors take(const layout::PipelineMessage& message) {
    const auto found = parcels_->incoming.find(message.consumer);
    LH_ASSERT(found != parcels_->incoming.end(), "no receive for {}",
              to_string(message.consumer));
    if (found->second.work) {
      settle(*found->second.work, message.consumer, "for what rank", message.from,
             "sends");
    }
    nn::Tensors tensors = std::move(found->second.tensors);
    parcels_->incoming.erase(found);
    return tensors;
  }

  /// Frees the memory of messages that their receivers have got.
  void sweep() {
    if (slots_) {
      // A host that runs ahead of its device would keep all messages of a step. The
      // number of messages that are kept must not depend on how far the device has come.
      while (parcels_->sent.size() > kSendsKept) {
        parcels_->sent.front().work->order();
        parcels_->sent.erase(parcels_->sent.begin());
      }
      return;
    }
    std::erase_if(parcels_->sent, [](const Parcel& p) { return p.work->test(); });
    // If nothing is being sent, a test of any receive lets the backend make progress.
    if (parcels_->sent.empty() && !parcels_->incoming.empty()) {
      const Parcel& any = parcels_->incoming.begin()->second;
      if (any.work) any.work->test();
    }
  }

  void finish() {
    for (const Parcel& parcel : parcels_->sent) {
      settle(*parcel.work, parcel.message.consumer, "until rank", parcel.message.to,
             "has received it");
    }
    LH_ASSERT(parcels_->incoming.empty(), "{} received tensors were never used",
              parcels_->incoming.size());
    finished_ = true;
  }

 private:
  struct Parcels {
    std::map<layout::PipelineAction, Parcel>
        incoming;  ///< by the action that needs the message
    std::vector<Parcel> sent;
  };

  static void add_transfers(std::vector<comm::Transfer>& transfers,
                            comm::Transfer::Kind kind, int peer,
                            const nn::Tensors& tensors) {
    for (const at::Tensor& tensor : tensors) {
      transfers.push_back({kind, peer, tensor::buffer_of(tensor)});
    }
  }

  comm::WorkPtr start(comm::Transfer::Kind kind, int peer, const nn::Tensors& tensors) {
    std::vector<comm::Transfer> transfers;
    add_transfers(transfers, kind, peer, tensors);
    return pp_.send_recv(transfers);
  }

  nn::Tensors room_for(const layout::PipelineMessage& message) {
    nn::Tensors buffers;
    for (const auto& shape : stage_.boundary_shapes(message.consumer.micro_batch)) {
      buffers.push_back(
          at::empty(shape, at::TensorOptions(boundary_.device).dtype(boundary_.dtype)));
    }
    return buffers;
  }

  /// Posts the groups that are due when `done` actions were run. `output` is the result
  /// of the last of these actions.
  void post_slots(size_t done, const nn::Tensors& output) {
    for (const layout::MessageGroup& group : slots_->after(done)) {
      std::vector<comm::Transfer> transfers;
      std::vector<Parcel> received;
      Parcel sent;
      for (const layout::PipelineMessage& message : group.messages) {
        if (message.from == pp_.rank()) {
          add_transfers(transfers, comm::Transfer::Kind::Send, message.to, output);
          sent = {message, output, nullptr};
        } else {
          received.push_back({message, room_for(message), nullptr});
          add_transfers(transfers, comm::Transfer::Kind::Recv, message.from,
                        received.back().tensors);
        }
      }
      const std::shared_ptr<comm::Work> work = pp_.send_recv(std::move(transfers));
      for (Parcel& parcel : received) {
        add_incoming(parcel.message, std::move(parcel.tensors), work);
      }
      if (sent.tensors.empty()) continue;
      sent.work = work;
      parcels_->sent.push_back(std::move(sent));
    }
  }

  void add_incoming(const layout::PipelineMessage& message, nn::Tensors tensors,
                    std::shared_ptr<comm::Work> work) {
    const bool added = parcels_->incoming
                           .emplace(message.consumer,
                                    Parcel{message, std::move(tensors), std::move(work)})
                           .second;
    LH_ASSERT(added, "a second message for {}", to_string(message.consumer));
  }

  /// Checks a message before it is sent: a receiver that expects another size would wait,
  /// or fail far from the cause.
  void check(const layout::PipelineMessage& message, const nn::Tensors& output) {
    const std::string name = to_string(message.consumer);
    const Shapes shapes = stage_.boundary_shapes(message.consumer.micro_batch);
    LH_CHECK(output.size() == shapes.size(), "pipeline",
             "rank {} has {} tensors to pass on for {}, not {}", message.from,
             output.size(), name, shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      const at::Tensor& tensor = output[i];
      LH_CHECK(tensor.sizes() == at::IntArrayRef(shapes[i]) &&
                   tensor.scalar_type() == boundary_.dtype,
               "pipeline",
               "rank {} passes on {} elements of {} for {}, not the boundary's shape of "
               "{} dims in {}",
               message.from, tensor.numel(), c10::toString(tensor.scalar_type()), name,
               shapes[i].size(), c10::toString(boundary_.dtype));
    }
  }

  /// Lets the device wait for the message. Without a device the host waits.
  void settle(comm::Work& work, const layout::PipelineAction& action, const char* before,
              int peer, const char* after) {
    if (work.test()) return;
    const Span span(trace_, Trace::Lane::Wait, action);
    try {
      work.order();
    } catch (const TemporaryError& error) {
      fail_temporary("pipeline", "rank {} waits with {} {} {} {}: {}", pp_.rank(),
                     to_string(action), before, peer, after, error.what());
    }
  }

  PipelineStage& stage_;
  comm::Communicator& pp_;
  BoundaryOptions boundary_;
  Trace* trace_;
  std::optional<layout::ReceiveOrder> receives_;  ///< absent where transfers run in order
  std::optional<layout::SlotOrder> slots_;  ///< present where transfers run in order
  std::unique_ptr<Parcels> parcels_;
  bool finished_ = false;
};

nn::Tensors run(PipelineStage& stage, const layout::PipelineAction& action,
                const nn::Tensors& received) {
  switch (action.kind) {
    case Kind::Forward:
      return stage.forward(action.chunk, action.micro_batch, received);
    case Kind::Backward:
      return stage.backward(action.chunk, action.micro_batch, received);
    case Kind::WeightGradients:
      stage.weight_gradients(action.chunk, action.micro_batch);
      break;
  }
  return {};
}

}  // namespace

void execute(const layout::PipelinePlan& plan, PipelineStage& stage,
             comm::Communicator& pp, const BoundaryOptions& boundary, Trace* trace) {
  LH_CHECK(plan.stages == pp.size(), "pipeline", "a plan for {} ranks on {} of '{}'",
           plan.stages, pp.size(), pp.name());
  Exchange exchange(plan, stage, pp, boundary, trace);
  const std::vector<layout::PipelineAction>& actions = plan.of(pp.rank());
  for (size_t i = 0; i < actions.size(); ++i) {
    const layout::PipelineAction& action = actions[i];
    exchange.prepare(i);
    nn::Tensors tensors;
    if (const auto before = layout::message_before(plan, pp.rank(), action)) {
      tensors = exchange.take(*before);
    }
    exchange.sweep();
    {
      const Span span(trace, Trace::Lane::Compute, action);
      tensors = run(stage, action, tensors);
    }
    exchange.pass(i, layout::message_after(plan, pp.rank(), action), tensors);
  }
  exchange.finish();
}

}  // namespace longhaul::parallel
