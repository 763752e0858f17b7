#pragma once

#include <ATen/Parallel.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/ops/loss_head.h"
#include "longhaul/parallel/tensor/region.h"
#include "longhaul/tensor/init.h"
#include "tests/support/apply_ranks.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/parameters.h"
#include "tests/support/side_by_side.h"

// Compares a model on several ranks of tensor parallelism with the model on one rank, its
// twin.

namespace longhaul::parallel::twin {

constexpr int64_t kBatch = 2, kSeq = 12, kTokens = kBatch * kSeq;

/// A model of any family, as functions.
struct Family {
  std::vector<tensor::ParameterPtr> parameters;
  std::function<nn::Tensors(const nn::ForwardContext&)> hidden;
  std::function<at::Tensor(const nn::Tensors& hidden, const nn::ForwardContext&)> loss;
  std::shared_ptr<void> owner;  ///< keeps alive what the functions use
};

/// How a family's model is made, and its sizes.
struct Model {
  std::function<Family()> make;
  int64_t vocabulary = 101;
};

/// Faults that can be planted.
enum class Fault { None, NormSum, KeySum, EnterSum };

struct Case {
  int tp = 1;
  bool sequence = false;
  at::ScalarType type = at::kFloat;
  bool fused = true;
  bool selective = false;
  bool deferred = false;  ///< weight gradients are deferred
  Fault fault = Fault::None;
  nn::AttentionCore attention = nullptr;
  double z_loss = 1e-3;
};

struct Result {
  double loss = 0.0;
  double cross_entropy = 0.0;
  at::Tensor hidden;
  std::map<std::string, at::Tensor> grads;
};

/// The results of one rank.
struct RankResult {
  Result result;
  std::vector<layout::ParameterShard> shards;
  std::vector<at::Tensor> grads;
};

/// A faulty SplitRegion, which does not sum the gradients of its input.
class ForgetfulRegion : public nn::SplitRegion {
 public:
  explicit ForgetfulRegion(const nn::SplitRegion& inner) : inner_(inner) {}
  int64_t ranks() const override { return inner_.ranks(); }
  int64_t token_parts() const override { return inner_.token_parts(); }
  at::Tensor outside(const at::Tensor& rows) const override {
    return inner_.outside(rows);
  }
  ops::LinearInput enter(const at::Tensor& x) const override { return x; }
  at::Tensor leave(const at::Tensor& y) const override { return inner_.leave(y); }
  void combine_loss(at::Tensor& lse, at::Tensor& picked) const override {
    inner_.combine_loss(lse, picked);
  }
  void sum_features(at::Tensor& sums) const override { inner_.sum_features(sums); }

 private:
  const nn::SplitRegion& inner_;
};

inline void bind_values(const std::vector<tensor::ParameterPtr>& parameters,
                        at::ScalarType type) {
  for (const tensor::ParameterPtr& p : parameters) {
    const format::TensorSlice& slice = p->slice();
    at::Tensor values = at::empty(slice.extent, at::kFloat);
    tensor::initial_values(slice, {Init::Kind::Normal, 0.2}, 5, 0, slice.num_elements(),
                           values.data_ptr<float>());
    if (slice.extent.size() == 1) values.add_(1.0);  // a norm's weight
    p->set_frozen(false);
    p->bind(values.to(type), at::zeros(slice.extent, at::kFloat));
  }
}

inline nn::ForwardContext context_of(const Case& c) {
  nn::ForwardContext context;
  nn::Batch& batch = context.batch;
  batch.rows = kBatch;
  batch.seq = kSeq;
  batch.positions = at::arange(kSeq, at::kInt).repeat({kBatch});
  batch.document_start = at::zeros({kBatch, kSeq}, at::kInt);
  batch.document_start.select(0, 1).narrow(0, 5, kSeq - 5).fill_(5);
  context.fused = c.fused;
  context.weight_gradients = std::make_shared<ops::WeightGradients>();
  context.weight_gradients->set_immediate(!c.deferred);
  context.selective_recompute = c.selective;
  context.attention = c.attention;
  return context;
}

/// Adds up the gradients of which several ranks have parts, as a session does.
/// Collective.
inline void sum_gradients(const Family& family,
                          const std::vector<layout::ParameterShard>& shards,
                          comm::Communicator& tp, Fault fault) {
  for (size_t i = 0; i < shards.size(); ++i) {
    const at::Tensor grad = family.parameters[i]->grad();
    const comm::Buffer buffer{grad.data_ptr(), grad.numel(), format::DType::F32};
    if (shards[i].sum == layout::GradientSum::Tp && fault != Fault::NormSum) {
      tp.all_reduce_wait(buffer, comm::ReduceOp::Sum);
    }
    if (shards[i].sum == layout::GradientSum::KeyReplicas && fault != Fault::KeySum) {
      const layout::KeyReplica replica = layout::key_replica(
          family.parameters[i]->split()->heads.key, {tp.rank(), tp.size()});
      const auto holders = tp.split(replica.color, replica.index, "key replicas");
      holders->all_reduce_wait(buffer, comm::ReduceOp::Sum);
    }
  }
}

/// Runs one rank, or the twin where `tp` is null.
inline RankResult run_rank(const Model& model, const Case& c, comm::Communicator* tp) {
  at::set_num_threads(1);  // the ranks share the cores
  const int64_t ranks = tp == nullptr ? 1 : tp->size();
  const int64_t index = tp == nullptr ? 0 : tp->rank();
  const Family family = model.make();
  RankResult rank;
  rank.shards = apply_shard_plan(family.parameters, {ranks, c.sequence}, index);
  bind_values(family.parameters, c.type);
  // The twin multiplies with each matrix, the ranks with matrices that lie side by side.
  if (tp != nullptr) testing::lay_side_by_side(family.parameters);
  nn::ForwardContext context = context_of(c);
  std::optional<TensorRegion> region;
  std::optional<ForgetfulRegion> forgetful;
  if (tp != nullptr) {
    context.region = &region.emplace(*tp, c.sequence);
    if (c.fault == Fault::EnterSum) context.region = &forgetful.emplace(*region);
  }
  context.batch.tokens = at::arange(kTokens).mul(37).remainder(model.vocabulary);
  at::Tensor targets = at::arange(kTokens).mul(53).add(11).remainder(model.vocabulary);
  targets.narrow(0, 3, 2).fill_(-100);
  context.batch.targets = {targets};
  nn::Losses losses({1.0 / (kTokens - 2)});
  losses.z_loss = c.z_loss;
  context.losses = &losses;
  const nn::Tensors hidden = family.hidden(context);
  const at::Tensor loss = family.loss(hidden, context);
  torch::autograd::backward({loss}, {});
  context.weight_gradients->drain();
  if (tp != nullptr) sum_gradients(family, rank.shards, *tp, c.fault);
  rank.result.loss = loss.item<double>();
  rank.result.cross_entropy = losses.sums()[0];
  rank.result.hidden = hidden[0].detach();
  for (const tensor::ParameterPtr& p : family.parameters) rank.grads.push_back(p->grad());
  return rank;
}

/// Puts the counted slices of all ranks together. Copies that are not counted must be
/// equal to the counted ones, unless a fault was planted.
inline std::map<std::string, at::Tensor> assemble(const std::vector<RankResult>& ranks,
                                                  bool check_copies) {
  std::map<std::string, at::Tensor> full;
  for (size_t i = 0; i < ranks[0].shards.size(); ++i) {
    const std::string& name = ranks[0].shards[i].slice.name;
    at::Tensor grad = at::zeros(ranks[0].shards[i].slice.global_shape, at::kFloat);
    const auto place = [&](const at::Tensor& target, const RankResult& rank) {
      at::Tensor box = target;
      const format::TensorSlice& slice = rank.shards[i].slice;
      for (size_t d = 0; d < slice.extent.size(); ++d) {
        box = box.narrow(static_cast<int64_t>(d), slice.offset[d], slice.extent[d]);
      }
      return box;
    };
    at::Tensor times = at::zeros_like(grad);
    for (const RankResult& rank : ranks) {
      if (!rank.shards[i].counted) continue;
      place(grad, rank).copy_(rank.grads[i]);
      place(times, rank).add_(1.0);
    }
    EXPECT_TRUE(times.eq(1.0).all().item<bool>()) << name << " is not counted once";
    for (const RankResult& rank : ranks) {
      if (!check_copies) break;
      EXPECT_TRUE(at::equal(place(grad, rank), rank.grads[i])) << name;
    }
    full[name] = grad;
  }
  return full;
}

/// Runs the model on c.tp ranks, or the twin where c.tp is 1.
inline Result run(const Model& model, const Case& c) {
  at::manual_seed(1);
  std::vector<RankResult> ranks(static_cast<size_t>(c.tp));
  if (c.tp == 1) {
    ranks[0] = run_rank(model, c, nullptr);
  } else {
    comm::run_fake_ranks(c.tp, [&](const std::shared_ptr<comm::Communicator>& world) {
      ranks[static_cast<size_t>(world->rank())] = run_rank(model, c, world.get());
    });
  }
  Result result = ranks[0].result;
  std::vector<at::Tensor> rows;
  for (const RankResult& rank : ranks) {
    EXPECT_EQ(rank.result.loss, result.loss) << "ranks disagree";
    EXPECT_EQ(rank.result.cross_entropy, result.cross_entropy);
    rows.push_back(rank.result.hidden);
    if (!c.sequence) {
      EXPECT_TRUE(at::equal(rows.back(), rows.front()));
    }
  }
  if (c.sequence && c.tp > 1) result.hidden = at::cat(rows);
  result.grads = assemble(ranks, c.fault == Fault::None);
  return result;
}

/// The largest of all relative errors, ||a - b|| / (||b|| + 1e-6 global norm).
struct Difference {
  double worst = 0.0;
  std::string name;
};

inline Difference compare(const Result& mine, const Result& twin) {
  Difference difference;
  double squares = 0.0;
  for (const auto& [name, grad] : twin.grads) {
    squares += grad.square().sum(at::kDouble).item<double>();
  }
  const auto take = [&](const std::string& name, const at::Tensor& a,
                        const at::Tensor& b) {
    const at::Tensor wide = b.to(at::kDouble);
    const double error = (a.to(at::kDouble) - wide).norm().item<double>();
    const double relative =
        error / (wide.norm().item<double>() + 1e-6 * std::sqrt(squares));
    if (!(relative <= difference.worst)) difference = {relative, name};
  };
  take("loss", at::full({1}, mine.loss), at::full({1}, twin.loss));
  take("hidden", mine.hidden, twin.hidden);
  EXPECT_EQ(mine.grads.size(), twin.grads.size());
  for (const auto& [name, grad] : twin.grads) take(name, mine.grads.at(name), grad);
  return difference;
}

/// Expects that all numbers are equal to the last bit.
inline void expect_same_bits(const Result& a, const Result& b, const std::string& what) {
  EXPECT_EQ(a.loss, b.loss) << what;
  EXPECT_TRUE(at::equal(a.hidden, b.hidden)) << what;
  for (const auto& [name, grad] : b.grads) {
    EXPECT_TRUE(at::equal(a.grads.at(name), grad)) << what << ": " << name;
  }
}

inline double twin_tolerance(at::ScalarType type) {
  return type == at::kFloat ? 1e-5 : 3e-2;
}

inline std::string describe(const Case& c) {
  return std::string("tp ") + std::to_string(c.tp) + (c.sequence ? " sequence" : "") +
         (c.type == at::kFloat ? " fp32" : " bf16") + (c.fused ? " fused" : " composite");
}

/// Compares tp 2, 3 and 4, with and without sequence parallelism, in both dtypes and
/// forms, with the twin.
inline void check_against_twin(const Model& model) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const bool fused : {true, false}) {
      Case c;
      c.type = type;
      c.fused = fused;
      const Result twin = run(model, c);
      for (const int tp : {2, 3, 4}) {
        for (const bool sequence : {false, true}) {
          c.tp = tp;
          c.sequence = sequence;
          const Difference d = compare(run(model, c), twin);
          EXPECT_LE(d.worst, twin_tolerance(type)) << describe(c) << ": " << d.name;
        }
      }
    }
  }
}

}  // namespace longhaul::parallel::twin
