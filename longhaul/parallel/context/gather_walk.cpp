#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "longhaul/parallel/context/key_walk.h"
#include "longhaul/tensor/buffer_of.h"

// Letters of shapes: N is the number of ranks of the cp group; local_attention.h explains
// the others.

namespace longhaul::parallel {
namespace {

/// Returns the part of one rank in [N, B, S, Hkv, D].
KeyValues of_rank(const KeyValues& all, int rank) {
  return {all.keys.select(0, rank), all.values.select(0, rank)};
}

class GatherWalk : public KeyWalk {
 public:
  GatherWalk(comm::Communicator& group, const KeyValues& own) : group_(group) {
    auto sizes = own.keys.sizes().vec();
    sizes.insert(sizes.begin(), group.size());
    all_ = {at::empty(sizes, own.keys.options()), at::empty(sizes, own.values.options())};
    const auto keys =
        group.all_gather(tensor::buffer_of(own.keys), tensor::buffer_of(all_.keys));
    const auto values =
        group.all_gather(tensor::buffer_of(own.values), tensor::buffer_of(all_.values));
    keys->order();
    values->order();
  }

  int source() const override { return (group_.rank() + step_) % group_.size(); }
  KeyValues current() const override { return of_rank(all_, source()); }
  bool next() override { return ++step_ < group_.size(); }

  KeyValues share() override {
    if (!gradients_.keys.defined()) gradients_ = zero_gradients(all_);
    return of_rank(gradients_, source());
  }
  void pass_on(const KeyValues& /*share*/) override {}
  KeyValues total() override {
    const KeyValues mine = of_rank(gradients_, group_.rank());
    const KeyValues own{at::empty_like(mine.keys), at::empty_like(mine.values)};
    const auto sum = [&](const at::Tensor& of_all, const at::Tensor& of_rank) {
      return group_.reduce_scatter(tensor::buffer_of(of_all), tensor::buffer_of(of_rank),
                                   comm::ReduceOp::Sum);
    };
    const auto keys = sum(gradients_.keys, own.keys);
    const auto values = sum(gradients_.values, own.values);
    keys->order();
    values->order();
    return own;
  }

 private:
  comm::Communicator& group_;
  int step_ = 0;
  KeyValues all_;        ///< of every rank, [N, B, S, Hkv, D]
  KeyValues gradients_;  ///< of all_, fp32; undefined before the first share
};

}  // namespace

std::unique_ptr<KeyWalk> gather_walk(comm::Communicator& group, const KeyValues& own) {
  return std::make_unique<GatherWalk>(group, own);
}

}  // namespace longhaul::parallel
