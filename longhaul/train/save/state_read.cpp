#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/finite_values.h"
#include "longhaul/comm/agree.h"
#include "longhaul/train/session/training_state.h"

namespace longhaul::train {
namespace {

/// Host memory between a file and another device than a CPU.
constexpr int64_t kStagingBytes = int64_t{256} << 20;

/// A state tensor of what this rank owns of a bucket, or of some of its parameters.
struct Target {
  const char* kind;
  at::Tensor tensor;
  const Bucket* bucket;
  const optim::UpdateCounts* counts = nullptr;  ///< of those that had an update by it
};

/// The parts of parameters that a target has to be filled with.
std::vector<FlatPiece> pieces_of(const Target& target) {
  std::vector<FlatPiece> pieces = pieces_in(*target.bucket, target.bucket->owned);
  if (target.counts == nullptr) return pieces;
  std::erase_if(pieces, [&](const FlatPiece& piece) {
    return target.counts->of(piece.member->parameter->name()) == 0;
  });
  return pieces;
}

/// The parts of parameters in all targets, of at most so many bytes each, one after the
/// other.
class Parts {
 public:
  struct Part {
    checkpoint::ReadRequest request;  ///< its `out` is empty
    at::Tensor to;
  };
  Parts(std::vector<Target> targets, int64_t max_bytes)
      : targets_(std::move(targets)), max_bytes_(max_bytes) {}

  bool done() {
    while (target_ < targets_.size() && piece_ == pieces_.size()) {
      if (started_) ++target_;
      started_ = true;
      piece_ = 0;
      pieces_.clear();
      if (target_ == targets_.size()) break;
      pieces_ = pieces_of(targets_[target_]);
    }
    return target_ == targets_.size();
  }

  /// The next part; done() was false.
  Part next() {
    const Target& target = targets_[target_];
    const FlatPiece& piece = pieces_[piece_];
    const auto size = static_cast<int64_t>(target.tensor.element_size());
    const int64_t begin = piece.in_member.begin + at_;
    const int64_t end = std::min(piece.in_member.end, begin + max_bytes_ / size);
    Part part;
    part.to = target.tensor.narrow(0, piece.in_bucket + at_ - target.bucket->owned.begin,
                                   end - begin);
    part.request = {target.kind,
                    piece.member->parameter->slice(),
                    begin,
                    end,
                    from_scalar_type(target.tensor.scalar_type()),
                    {}};
    at_ += end - begin;
    if (end == piece.in_member.end) {
      at_ = 0;
      ++piece_;
    }
    return part;
  }

 private:
  std::vector<Target> targets_;
  int64_t max_bytes_;
  bool started_ = false;
  size_t target_ = 0;
  std::vector<FlatPiece> pieces_;  ///< of that target
  size_t piece_ = 0;
  int64_t at_ = 0;  ///< elements of that piece that are done
};

/// Where state is read from: files that ranks read together, and for tensors that those
/// hold in another form the source itself.
struct From {
  const checkpoint::StoredTensors& stored;
  std::string where;  ///< for messages
  const checkpoint::WeightsSource* source = nullptr;

  /// Reads what has to be read from the source, or leaves it to be read together.
  void add(checkpoint::ReadRequest request,
           std::vector<checkpoint::ReadRequest>& together) const {
    if (source == nullptr || source->as_stored(request.slice.name)) {
      together.push_back(std::move(request));
      return;
    }
    source->read_flat_range(request.slice, request.begin, request.end, request.dtype,
                            request.out);
  }
};

/// Looks for weights that are NaN or infinite among what was read.
class ValueCheck {
 public:
  void look_at(const checkpoint::ReadRequest& request) {
    if (request.kind != checkpoint::kWeight) return;
    const auto found = first_not_finite(request.out, request.dtype);
    if (!found) return;
    const std::string& name = request.slice.name;
    const int64_t index =
        whole_index(request.slice, request.begin + static_cast<int64_t>(*found));
    if (found_ && std::tie(found_->name, found_->index) <= std::tie(name, index)) return;
    double value = 0.0;
    convert_elements(request.out.data() + *found * dtype_size(request.dtype),
                     request.dtype, reinterpret_cast<std::byte*>(&value), DType::F64, 1);
    found_ = {name, index, describe_element(name, request.slice.global_shape, index),
              fmt::format("{}", value), request.dtype};
  }

  /// InputError, the same on all ranks of `node`, where any has found one: the first of
  /// its tensor, by the names of the files where those are known. Collective.
  void settle(const From& from, comm::Communicator& node) const {
    if (!node.any(found_.has_value())) return;
    Json mine;
    if (found_) mine = {found_->name, found_->index, found_->element, found_->value};
    Json first;
    for (const std::string& text : node.gather_strings(json_text(mine))) {
      const Json other = Json::parse(text);
      if (!other.is_null() && (first.is_null() || other < first)) first = other;
    }
    comm::on_all_ranks(node, [&] {
      if (first != mine) return;
      if (from.source) checkpoint::scan_finite(*from.source, found_->name, found_->dtype);
      checkpoint::refuse_value(from.where, found_->element, found_->value);
    });
  }

 private:
  struct Found {
    std::string name;
    int64_t index = 0;
    std::string element;
    std::string value;
    DType dtype = DType::F32;
  };
  std::optional<Found> found_;
};

/// Straight into the tensors. What may fail on one rank the ranks agree upon before they
/// read together. Collective over `node`.
checkpoint::ReadReport read_in_place(const From& from, Parts parts, ValueCheck& check,
                                     comm::Communicator& node) {
  std::vector<checkpoint::ReadRequest> all;
  std::vector<checkpoint::ReadRequest> requests;
  comm::on_all_ranks(node, [&] {
    while (!parts.done()) {
      Parts::Part part = parts.next();
      part.request.out = bytes_of(part.to);
      all.push_back(part.request);
      from.add(std::move(part.request), requests);
    }
  });
  checkpoint::ReadReport report = checkpoint::read_together(from.stored, requests, node);
  for (const checkpoint::ReadRequest& request : all) check.look_at(request);
  return report;
}

/// Through host memory, as much at a time as fits it; the ranks agree as above.
/// Collective over `node`.
checkpoint::ReadReport read_staged(const From& from, Parts parts, int64_t batch_bytes,
                                   ValueCheck& check, comm::Communicator& node) {
  checkpoint::ReadReport report;
  while (node.any(!parts.done())) {
    std::vector<checkpoint::ReadRequest> all;
    std::vector<checkpoint::ReadRequest> requests;
    std::vector<std::pair<at::Tensor, at::Tensor>> copies;
    comm::on_all_ranks(node, [&] {
      int64_t bytes = 0;
      while (bytes < batch_bytes && !parts.done()) {
        Parts::Part part = parts.next();
        const at::Tensor host =
            at::empty(part.to.sizes(), part.to.options().device(at::kCPU));
        part.request.out = bytes_of(host);
        bytes += static_cast<int64_t>(host.nbytes());
        all.push_back(part.request);
        from.add(std::move(part.request), requests);
        copies.emplace_back(part.to, host);
      }
    });
    report += checkpoint::read_together(from.stored, requests, node);
    comm::on_all_ranks(node, [&] {
      for (const checkpoint::ReadRequest& request : all) check.look_at(request);
      for (const auto& [to, host] : copies) to.copy_(host);
    });
  }
  return report;
}

/// Host memory between the files and the state: none where that is in host memory itself.
std::optional<int64_t> staging_for(const FlatBuffers& flat) {
  if (flat.device().is_cpu()) return std::nullopt;
  return kStagingBytes;
}

checkpoint::ReadReport fill(const From& from, std::vector<Target> targets,
                            std::optional<int64_t> staging, comm::Communicator& node) {
  ValueCheck check;
  checkpoint::ReadReport report;
  if (!staging) {
    constexpr int64_t kWhole = std::numeric_limits<int64_t>::max() / 2;
    report = read_in_place(from, Parts(std::move(targets), kWhole), check, node);
  } else {
    // A batch may exceed its half of the memory by one part.
    const int64_t half = *staging / 2;
    report = read_staged(from, Parts(std::move(targets), half), half, check, node);
  }
  check.settle(from, node);
  return report;
}

From from_source(const checkpoint::WeightsSource& source) {
  return {source.stored(), source.source().path.string(), &source};
}

std::vector<Target> masters_of(ModelState state) {
  std::vector<Target> targets;
  const auto& buckets = state.flat.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    targets.push_back(
        {checkpoint::kWeight, state.optimizer.states()[i].master, &buckets[i]});
  }
  return targets;
}

/// The moments of parameters that had no update, which an earlier state may have left.
void begin_with_zeros(const optim::BucketState& state, const Bucket& bucket,
                      const optim::UpdateCounts& counts) {
  for (const FlatPiece& piece : pieces_in(bucket, bucket.owned)) {
    if (counts.of(piece.member->parameter->name()) > 0) continue;
    for (const at::Tensor& moments : {state.exp_avg, state.exp_avg_sq}) {
      moments.narrow(0, piece.in_bucket - bucket.owned.begin, piece.in_member.size())
          .zero_();
    }
  }
}

}  // namespace

checkpoint::ReadReport load_weights(ModelState state,
                                    const checkpoint::WeightsSource& source,
                                    comm::Communicator& node) {
  const checkpoint::ReadReport report =
      fill(from_source(source), masters_of(state), staging_for(state.flat), node);
  state.optimizer.publish_masters();
  return report;
}

checkpoint::ReadReport load_weights(FlatBuffers& flat,
                                    const checkpoint::WeightsSource& source,
                                    comm::Communicator& node) {
  std::vector<Target> targets;
  for (const Bucket& bucket : flat.buckets()) {
    targets.push_back({checkpoint::kWeight, bucket.owned_weights, &bucket});
  }
  return fill(from_source(source), std::move(targets), staging_for(flat), node);
}

checkpoint::ReadReport restore_state(ModelState state,
                                     const checkpoint::StoredTensors& stored,
                                     const std::string& where, comm::Communicator& node,
                                     std::optional<int64_t> staging_bytes) {
  std::vector<Target> targets = masters_of(state);
  const auto& buckets = state.flat.buckets();
  comm::on_all_ranks(node, [&] {
    for (size_t i = 0; i < buckets.size(); ++i) {
      const optim::BucketState& own = state.optimizer.states()[i];
      if (!own.exp_avg.defined()) continue;  // frozen
      const optim::UpdateCounts* counts = &state.optimizer.counts();
      begin_with_zeros(own, buckets[i], *counts);
      targets.push_back({checkpoint::kExpAvg, own.exp_avg, &buckets[i], counts});
      targets.push_back({checkpoint::kExpAvgSq, own.exp_avg_sq, &buckets[i], counts});
    }
  });
  const checkpoint::ReadReport report =
      fill({stored, where}, std::move(targets),
           staging_bytes ? staging_bytes : staging_for(state.flat), node);
  state.optimizer.publish_masters();
  return report;
}

}  // namespace longhaul::train
