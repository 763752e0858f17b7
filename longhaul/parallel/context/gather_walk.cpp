#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "longhaul/parallel/context/key_walk.h"
#include "longhaul/tensor/buffer_of.h"

// Letters of shapes: N is the number of ranks of the cp group; local_attention.h explains
// the others.

namespace longhaul::parallel {
namespace {

/// Returns the part of one rank, [B, S, ...], from tensors [N, B, S, ...] of all ranks.
KeptPositions of_rank(const KeptPositions& all, int rank) {
  return each_of(all, [&](const at::Tensor& x) { return x.select(0, rank); });
}

class GatherWalk : public KeyWalk {
 public:
  GatherWalk(comm::Communicator& group, const KeptPositions& own) : group_(group) {
    std::vector<comm::WorkPtr> gathers;
    all_ = each_of(own, [&](const at::Tensor& x) {
      auto sizes = x.sizes().vec();
      sizes.insert(sizes.begin(), group.size());
      return at::empty(sizes, x.options());
    });
    for (size_t i = 0; i < own.size(); ++i) {
      gathers.push_back(
          group.all_gather(tensor::buffer_of(own[i]), tensor::buffer_of(all_[i])));
    }
    for (const comm::WorkPtr& gather : gathers) gather->order();
  }

  int source() const override { return (group_.rank() + step_) % group_.size(); }
  KeptPositions current() const override { return of_rank(all_, source()); }
  bool next() override { return ++step_ < group_.size(); }

  KeptPositions share() override {
    if (gradients_.empty()) gradients_ = zero_gradients(all_);
    return of_rank(gradients_, source());
  }
  void pass_on(const KeptPositions& /*share*/) override {}
  KeptPositions total() override {
    std::vector<comm::WorkPtr> sums;
    const KeptPositions own =
        each_of(of_rank(gradients_, group_.rank()),
                [](const at::Tensor& mine) { return at::empty_like(mine); });
    for (size_t i = 0; i < own.size(); ++i) {
      sums.push_back(group_.reduce_scatter(tensor::buffer_of(gradients_[i]),
                                           tensor::buffer_of(own[i]),
                                           comm::ReduceOp::Sum));
    }
    for (const comm::WorkPtr& sum : sums) sum->order();
    return own;
  }

 private:
  comm::Communicator& group_;
  int step_ = 0;
  KeptPositions all_;        ///< of every rank, [N, B, S, ...]
  KeptPositions gradients_;  ///< of all_, fp32; empty before the first share
};

}  // namespace

std::unique_ptr<KeyWalk> gather_walk(comm::Communicator& group,
                                     const KeptPositions& own) {
  return std::make_unique<GatherWalk>(group, own);
}

}  // namespace longhaul::parallel
