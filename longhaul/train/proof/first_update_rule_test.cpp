#include "longhaul/train/proof/first_update_rule.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "longhaul/comm/backend.h"
#include "longhaul/optim/optimizer.h"

namespace longhaul::train {
namespace {

constexpr double kRate = 1e-2;

/// The settings of a run that the first update depends on.
struct Case {
  OptimizerKind kind = OptimizerKind::AdamW;
  AdamConvention convention = AdamConvention::Torch;
  format::DType master = format::DType::F32;
  format::DType moments = format::DType::F32;
  format::DType gradients = format::DType::F32;

  std::string text() const {
    return fmt::format("{} {} masters {} moments {} gradients {}",
                       kind == OptimizerKind::Lamb ? "lamb" : "adamw",
                       convention == AdamConvention::Hf ? "hf" : "torch",
                       format::dtype_name(master), format::dtype_name(moments),
                       format::dtype_name(gradients));
  }
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const format::DType master : {format::DType::F32, format::DType::BF16}) {
    for (const format::DType moments : {format::DType::F32, format::DType::BF16}) {
      for (const format::DType gradients : {format::DType::F32, format::DType::BF16}) {
        for (const Case& one : {Case{}, Case{OptimizerKind::AdamW, AdamConvention::Hf},
                                Case{OptimizerKind::Lamb}}) {
          cases.push_back({one.kind, one.convention, master, moments, gradients});
        }
      }
    }
  }
  return cases;
}

/// Three parameters, with decay, without decay and frozen, before and after the
/// optimizer's own first update.
class Updated {
 public:
  explicit Updated(const Case& of)
      : policy_{format::DType::BF16, of.master, of.moments, of.gradients},
        flat_({{tensor::make_parameter("w", {200, 100}, {}), {1.0, 0.1, false}, 0},
               {tensor::make_parameter("b", {3000}, {}), {0.5, 0.0, false}, 0},
               {tensor::make_parameter("f", {500}, {}), {1.0, 0.1, true}, 0}},
              policy_, at::kCPU) {
    settings_.kind = of.kind;
    settings_.convention = of.convention;
    settings_.betas = {0.9, 0.999};
    settings_.eps = 1e-6;
    at::manual_seed(5);
    optim::Optimizer optimizer(flat_, settings_,
                               {{{"w", "w"}, {"b", "b"}, {"f", "f"}}, /*seed=*/3, {"f"}});
    for (size_t i = 0; i < flat_.buckets().size(); ++i) {
      tensor::Bucket& bucket = flat_.buckets()[i];
      const at::Tensor& master = optimizer.states()[i].master;
      master.copy_(at::randn(master.sizes()) * 0.3);
      loaded_.push_back(master.to(at::kDouble).clone());
      if (bucket.frozen) continue;
      // Gradients of every magnitude that occurs, and some that are zero.
      const at::Tensor g = at::randn(master.sizes());
      bucket.owned_grads.copy_(g * at::exp(at::randn(master.sizes()) * 4.0 - 6.0));
      bucket.owned_grads.narrow(0, 0, 10).zero_();
    }
    optimizer.publish_masters();
    optimizer.step(kRate, 0.7, *comm::self_world());
    for (size_t i = 0; i < flat_.buckets().size(); ++i) {
      const tensor::Bucket& bucket = flat_.buckets()[i];
      const optim::BucketState& state = optimizer.states()[i];
      for (const tensor::FlatMember& member : bucket.members) {
        const auto cut = [&](const at::Tensor& t) {
          return t.narrow(0, member.begin, member.num_elements).to(at::kDouble);
        };
        const double ratio = optimizer.trust_ratio(member);
        parts_.emplace(
            member.parameter->name(),
            Part{FirstUpdateRule(settings_, policy_, member.kind, kRate, ratio),
                 cut(state.master), cut(loaded_[i]),
                 bucket.frozen ? at::zeros_like(cut(loaded_[i])) : cut(state.exp_avg),
                 kRate * member.kind.lr_scale * ratio});
      }
    }
  }

  struct Part {
    FirstUpdateRule rule;
    at::Tensor masters;
    at::Tensor loaded;
    at::Tensor exp_avg;
    double rate = 0.0;
  };
  const std::map<std::string, Part>& parts() const { return parts_; }

 private:
  tensor::DTypePolicy policy_;
  OptimizerSection settings_;
  tensor::FlatBuffers flat_;
  std::vector<at::Tensor> loaded_;
  std::map<std::string, Part> parts_;
};

double worst(const Updated::Part& part, const at::Tensor& masters) {
  return part.rule.shares(masters, part.loaded, part.exp_avg).max().item<double>();
}

TEST(FirstUpdateRule, HoldsForEveryOptimizerAndDtypeOfItsState) {
  for (const Case& one : all_cases()) {
    SCOPED_TRACE(one.text());
    const Updated updated(one);
    for (const auto& [name, part] : updated.parts()) {
      EXPECT_LE(worst(part, part.masters), 1.0) << name;
    }
  }
}

TEST(FirstUpdateRule, IsNoWiderThanTheRoundingsNeed) {
  // The bound is not too wide: somewhere in each parameter rounding uses a good part of
  // what is allowed.
  for (const Case& one : all_cases()) {
    if (one.moments == format::DType::F32 && one.master == format::DType::F32) continue;
    SCOPED_TRACE(one.text());
    const Updated updated(one);
    const Updated::Part& part = updated.parts().at("w");
    EXPECT_GE(worst(part, part.masters), 0.4);
  }
}

TEST(FirstUpdateRule, FailsOnWhatDidNotComeFromTheLoadedValuesAndThisUpdate) {
  for (const Case& one : all_cases()) {
    SCOPED_TRACE(one.text());
    const Updated updated(one);
    const auto& parts = updated.parts();
    for (const auto& [name, part] : parts) {
      // The masters of another model are wrong, and so is a single element that is not a
      // number.
      EXPECT_GT(worst(part, part.masters.flip(0)), 1.0);
      at::Tensor broken = part.masters.clone();
      broken[7] = std::nan("");
      EXPECT_GT(worst(part, broken), 1.0);
    }
    if (one.master == format::DType::BF16)
      continue;  // rounding to bf16 is coarser than the update
    for (const char* name : {"w", "b"}) {
      // The rule must find a missing update, an update in the wrong direction, a double
      // one, and one with another rate.
      const Updated::Part& part = parts.at(name);
      const at::Tensor step = part.masters - part.loaded;
      for (const double times : {0.0, -1.0, 2.0, 0.9}) {
        EXPECT_GT(worst(part, part.loaded + times * step), 1.0) << name << times;
      }
      // Masters that were rounded to bf16 on the way are wrong.
      EXPECT_GT(worst(part, part.masters.to(at::kBFloat16).to(at::kDouble)), 1.0);
    }
    // An update without decay is wrong; the largest elements show it most.
    const Updated::Part& w = parts.at("w");
    EXPECT_GT(worst(w, w.masters + w.loaded * w.rate * 0.1), 1.0);
    // A frozen parameter must not move at all.
    const Updated::Part& f = parts.at("f");
    EXPECT_GT(worst(f, f.loaded * (1.0 + 1e-5)), 1.0);
  }
}

}  // namespace
}  // namespace longhaul::train
