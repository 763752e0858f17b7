#include "longhaul/optim/optimizer.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/narrow_updates.h"
#include "longhaul/optim/operators.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::optim {
namespace {

at::Tensor part(const at::Tensor& flat, layout::FlatRange range) {
  return flat.narrow(0, range.begin, range.size());
}

/// Owned elements side by side that are updated in the same way.
struct ClassRun {
  tensor::ParameterClass kind;
  int64_t update = 0;       ///< the number of the update of the members
  layout::FlatRange range;  ///< counts from the start of the owned range
};

/// Returns the ClassRuns of a bucket. A padding belongs to the tensor before it, since in
/// every class an update leaves its zeros unchanged.
std::vector<ClassRun> runs_of(const tensor::Bucket& bucket, const UpdateCounts& counts) {
  std::vector<ClassRun> runs;
  for (size_t i = 0; i < bucket.members.size(); ++i) {
    const tensor::FlatMember& member = bucket.members[i];
    const int64_t next =
        i + 1 < bucket.members.size() ? bucket.members[i + 1].begin : bucket.num_elements;
    const int64_t begin = std::max(member.begin, bucket.owned.begin);
    const int64_t end = std::min(next, bucket.owned.end);
    if (begin >= end) continue;
    const layout::FlatRange range{begin - bucket.owned.begin, end - bucket.owned.begin};
    const int64_t update = counts.of(member.parameter->name());
    if (!runs.empty() && runs.back().kind == member.kind &&
        runs.back().update == update) {
      runs.back().range.end = range.end;
    } else {
      runs.push_back({member.kind, update, range});
    }
  }
  return runs;
}

/// Returns the tensors of a range of the owned elements of a bucket, which counts from
/// the first owned element.
AdamWTensors owned_tensors(const tensor::Bucket& bucket, const BucketState& state,
                           layout::FlatRange range) {
  return {part(bucket.owned_grads, range), part(state.master, range),
          part(state.exp_avg, range), part(state.exp_avg_sq, range),
          part(bucket.owned_weights, range)};
}

/// A part of a tensor that this rank updates, and whether this rank counts the part in
/// norms.
struct CountedRange {
  layout::FlatRange range;  ///< counts elements of the bucket
  bool counted = false;
};

/// Returns the parts of a piece before, in and after Bucket::saved, in this order.
std::vector<CountedRange> counted_parts(const tensor::Bucket& bucket,
                                        const tensor::FlatPiece& piece) {
  const layout::FlatRange all{piece.in_bucket, piece.in_bucket + piece.in_member.size()};
  const int64_t begin = std::clamp(bucket.saved.begin, all.begin, all.end);
  const int64_t end = std::clamp(bucket.saved.end, begin, all.end);
  std::vector<CountedRange> parts;
  for (const CountedRange& side : {CountedRange{{all.begin, begin}, false},
                                   {{begin, end}, true},
                                   {{end, all.end}, false}}) {
    if (side.range.size() > 0) parts.push_back(side);
  }
  return parts;
}

}  // namespace

Optimizer::Optimizer(tensor::FlatBuffers& flat, const OptimizerSection& settings,
                     OptimizerInputs inputs)
    : flat_(flat), settings_(settings), frozen_(std::move(inputs.frozen)) {
  set_counts({});
  if (settings.kind == OptimizerKind::Lamb) ratios_.emplace(std::move(inputs.tensor_of));
  const tensor::DTypePolicy& policy = flat.policy();
  if (policy.master == format::DType::BF16) {
    LH_CHECK(policy.compute == format::DType::BF16, "optim",
             "masters of BF16 and weights of {}", format::dtype_name(policy.compute));
    LH_CHECK(tensor::limits_of(flat.device()).wide_types, "optim",
             "precision.master = \"bf16_sr\" rounds by 64-bit integers, which the device "
             "{} does not have; set precision.master = \"fp32\"",
             flat.device().str());
    rounding_ = inputs.seed;
  }
  for (const tensor::Bucket& bucket : flat.buckets()) {
    BucketState state;
    if (bucket.frozen && !inputs.frozen_have_masters) {
      states_.push_back(std::move(state));
      continue;
    }
    const int64_t size = bucket.owned.size();
    const auto make = [&](format::DType dtype) {
      return tensor::allocate_flat(size, tensor::to_scalar_type(dtype), flat.device());
    };
    if (policy.master == policy.compute) {
      state.master = bucket.owned_weights;
    } else {
      state.master = make(policy.master);
      state.master.copy_(bucket.owned_weights);
    }
    if (!bucket.frozen) {
      state.exp_avg = make(policy.moments);
      state.exp_avg_sq = make(policy.moments);
    }
    states_.push_back(std::move(state));
  }
}

/// The gradients that this rank counts, and for each the place of its parameter among the
/// names.
struct Optimizer::CountedGradients {
  std::vector<at::Tensor> parts;
  std::vector<int64_t> places;
};

Optimizer::CountedGradients Optimizer::counted_gradients(
    const std::vector<std::string>& names) const {
  std::map<std::string_view, int64_t> place_of;
  for (const std::string& name : names) {
    place_of.emplace(name, static_cast<int64_t>(place_of.size()));
  }
  CountedGradients counted;
  for (const tensor::Bucket& bucket : flat_.buckets()) {
    if (bucket.frozen) continue;
    for (const tensor::FlatPiece& piece : tensor::pieces_in(bucket, bucket.saved)) {
      const auto found = place_of.find(piece.member->parameter->name());
      LH_ASSERT(found != place_of.end(), "{} is no parameter of the model",
                piece.member->parameter->name());
      counted.parts.push_back(bucket.owned_grads.narrow(
          0, piece.in_bucket - bucket.owned.begin, piece.in_member.size()));
      counted.places.push_back(found->second);
    }
  }
  return counted;
}

at::Tensor Optimizer::gradient_squares(const std::vector<std::string>& names) const {
  const auto [parts, places] = counted_gradients(names);
  if (!tensor::limits_of(flat_.device()).wide_types) return block_squares(parts);
  at::Tensor sums = at::zeros({static_cast<int64_t>(names.size())},
                              at::TensorOptions(at::kDouble).device(flat_.device()));
  add_squares(parts, places, sums);
  return sums;
}

std::vector<double> Optimizer::squares_of_read(const std::vector<std::string>& names,
                                               const std::vector<double>& read) const {
  if (tensor::limits_of(flat_.device()).wide_types) return read;
  const auto [parts, places] = counted_gradients(names);
  std::vector<double> sums(names.size(), 0.0);
  auto from = read.cbegin();
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto end = from + num_square_blocks(parts[i].numel());
    double& sum = sums[static_cast<size_t>(places[i])];
    sum = std::accumulate(from, end, sum);
    from = end;
  }
  return sums;
}

double norm_over(comm::Communicator& world, std::vector<double>& squares) {
  world.all_reduce_wait(squares, comm::ReduceOp::Sum);
  return norm_of_sums(squares);
}

void Optimizer::step(double lr, double gradient_scale, comm::Communicator& world) {
  counts_.count(frozen_);
  if (ratios_) {
    lamb_step(lr, gradient_scale, world);
  } else {
    adamw_step(lr, gradient_scale);
  }
}

void Optimizer::set_counts(UpdateCounts counts) {
  counts_ = std::move(counts);
  counts_.begin_anew(frozen_);
}

AdamWStep Optimizer::step_of(const tensor::ParameterClass& kind, int64_t update,
                             double lr, double gradient_scale) const {
  return {settings_.convention, settings_.betas[0], settings_.betas[1], settings_.eps,
          lr * kind.lr_scale,   kind.weight_decay,  gradient_scale,     update};
}

template <typename Act>
void Optimizer::for_pieces(const Act& act) {
  const auto& buckets = flat_.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i].frozen) continue;
    for (const tensor::FlatPiece& piece : tensor::pieces_in(buckets[i], buckets[i].owned))
      act(i, piece);
  }
}

AdamWTensors Optimizer::tensors_of(size_t bucket, const tensor::FlatPiece& piece,
                                   layout::FlatRange range) const {
  const tensor::Bucket& of = flat_.buckets()[bucket];
  AdamWTensors t = owned_tensors(
      of, states_[bucket], {range.begin - of.owned.begin, range.end - of.owned.begin});
  if (rounding_) {
    const tensor::Parameter& parameter = *piece.member->parameter;
    t.rounding = {rounding_key(*rounding_, parameter.name()),
                  element_place(parameter.slice(),
                                piece.in_member.begin + range.begin - piece.in_bucket)};
  }
  return t;
}

void Optimizer::adamw_step(double lr, double gradient_scale) {
  const auto& buckets = flat_.buckets();
  if (rounding_) {
    for_pieces([&](size_t i, const tensor::FlatPiece& piece) {
      const int64_t begin = piece.in_bucket;
      update_adamw(
          tensors_of(i, piece, {begin, begin + piece.in_member.size()}),
          step_of(piece.member->kind, counts_.of(piece.member->parameter->name()), lr,
                  gradient_scale));
    });
    return;
  }
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i].frozen) continue;
    for (const ClassRun& run : runs_of(buckets[i], counts_)) {
      update_adamw(owned_tensors(buckets[i], states_[i], run.range),
                   step_of(run.kind, run.update, lr, gradient_scale));
    }
  }
}

void Optimizer::lamb_step(double lr, double gradient_scale, comm::Communicator& world) {
  const auto& buckets = flat_.buckets();
  const bool whole = !tensor::limits_of(flat_.device()).writes_views;
  ratios_->begin(flat_.device());
  for_pieces([&](size_t i, const tensor::FlatPiece& piece) {
    const std::string& name = piece.member->parameter->name();
    const AdamWStep step =
        step_of(piece.member->kind, counts_.of(name), lr, gradient_scale);
    if (whole) {
      const layout::FlatRange& own = buckets[i].owned;
      const auto [begin, end] = buckets[i].saved;
      const AdamWTensors t = tensors_of(i, piece, own);
      const at::Tensor sums =
          lamb_moments_narrow(t, step, {begin - own.begin, end - own.begin});
      if (sums.defined()) ratios_->add(name, sums);
      return;
    }
    for (const CountedRange& p : counted_parts(buckets[i], piece)) {
      update_lamb_moments(tensors_of(i, piece, p.range), step,
                          ratios_->sums_of(name, p.counted));
    }
  });
  ratios_->finish(world, lr);
  for_pieces([&](size_t i, const tensor::FlatPiece& piece) {
    const tensor::FlatMember& member = *piece.member;
    const std::string& name = member.parameter->name();
    const AdamWStep step = step_of(member.kind, counts_.of(name), 1.0, gradient_scale);
    const at::Tensor rate = member.kind.weight_decay == 0.0
                                ? ratios_->rate_without_ratio()
                                : ratios_->rate_of(name);
    if (whole) return apply_lamb(tensors_of(i, piece, buckets[i].owned), step, rate);
    for (const CountedRange& p : counted_parts(buckets[i], piece)) {
      apply_lamb(tensors_of(i, piece, p.range), step, rate);
    }
  });
}

double Optimizer::trust_ratio(const tensor::FlatMember& member) const {
  if (!ratios_ || member.kind.weight_decay == 0.0) return 1.0;
  return ratios_->of(member.parameter->name());
}

void Optimizer::publish_masters() {
  const auto& buckets = flat_.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (states_[i].master.defined()) buckets[i].owned_weights.copy_(states_[i].master);
  }
}

int64_t Optimizer::bytes() const {
  const bool shared = flat_.policy().master == flat_.policy().compute;
  int64_t total = 0;
  for (const BucketState& state : states_) {
    if (!state.master.defined()) continue;
    if (!shared) total += static_cast<int64_t>(state.master.nbytes());
    if (!state.exp_avg.defined()) continue;
    total += static_cast<int64_t>(state.exp_avg.nbytes() + state.exp_avg_sq.nbytes());
  }
  return total;
}

}  // namespace longhaul::optim
