#include "longhaul/ops/experts/grouped_linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/fused/library_op.h"
#include "longhaul/ops/linear/products.h"
#include "longhaul/ops/linear/side_by_side.h"

// Shapes: R rows, K features, N = sum n_i outputs of each row.

namespace longhaul::ops {
namespace {

/// The rows of an expert that has rows. The host reads them from the offsets.
struct ExpertRows {
  size_t expert;
  int64_t first, count;
};

std::vector<ExpertRows> rows_of_experts(const at::Tensor& offsets) {
  const at::Tensor host = offsets.to(at::kCPU);
  const auto* at = host.const_data_ptr<int32_t>();
  std::vector<ExpertRows> all;
  for (int64_t e = 0; e + 1 < host.size(0); ++e) {
    if (at[e + 1] > at[e]) {
      all.push_back({static_cast<size_t>(e), at[e], at[e + 1] - at[e]});
    }
  }
  return all;
}

/// Returns whether is(parameter) is true for every weight.
template <typename Is>
bool holds_for_all(const ExpertWeights& weights, const Is& is) {
  return std::ranges::all_of(weights, [&](const auto& expert) {
    return std::ranges::all_of(expert, [&](const auto& w) { return is(*w); });
  });
}

struct GroupedSaved {
  ExpertWeights weights;
  at::Tensor offsets;
  WeightGradientsPtr gradients;
  std::shared_ptr<SavedInput> again;
  bool fused;

  int64_t width(size_t i) const { return weights.front()[i]->slice().extent[0]; }
  int64_t width() const {
    int64_t sum = 0;
    for (size_t i = 0; i < weights.front().size(); ++i) sum += width(i);
    return sum;
  }
  bool frozen() const {
    return holds_for_all(weights, [](const auto& w) { return w.frozen(); });
  }
};

// ---- All experts at once

/// Returns matrices[e][i] as few tensors [E, n, K]: one for each run of projections that
/// lie side by side in every expert, in their order. Returns none if experts do not lie
/// at equal distances.
std::vector<at::Tensor> stacks_of(const std::vector<std::vector<at::Tensor>>& matrices) {
  std::vector<at::Tensor> stacks;
  for (size_t i = 0; i < matrices.front().size(); ++i) {
    std::vector<at::Tensor> parts;
    for (const auto& expert : matrices) parts.push_back(expert[i]);
    const at::Tensor next = stacked(parts);
    if (!next.defined()) return {};
    if (!stacks.empty()) {
      at::Tensor& last = stacks.back();
      const int64_t n = last.size(1), features = last.size(2);
      if (joined_rows({last.select(0, 0), next.select(0, 0)}).defined() &&
          last.stride(0) == next.stride(0)) {
        last = last.as_strided({last.size(0), n + next.size(1), features}, last.strides(),
                               last.storage_offset());
        continue;
      }
    }
    stacks.push_back(next);
  }
  return stacks;
}

/// Returns get(parameter) for all weights.
template <typename Get>
std::vector<std::vector<at::Tensor>> of_all(const ExpertWeights& weights,
                                            const Get& get) {
  std::vector<std::vector<at::Tensor>> all;
  for (const auto& expert : weights) {
    auto& of_expert = all.emplace_back();
    for (const tensor::ParameterPtr& w : expert) of_expert.push_back(get(*w));
  }
  return all;
}

/// Calls body(stack, columns) for each stack and its columns of y [R, N].
template <typename Body>
void for_stacks(const std::vector<at::Tensor>& stacks, const at::Tensor& y,
                const Body& body) {
  int64_t from = 0;
  for (const at::Tensor& stack : stacks) {
    body(stack, y.narrow(1, from, stack.size(1)));
    from += stack.size(1);
  }
}

const LibraryOp kGroupedMm("aten::_grouped_mm", "", "self mat2 offs");

/// Returns whether LibTorch's grouped product is one kernel on the GPU that a name like
/// "NVIDIA H100 sm_90" ends with. On other GPUs it is a loop, for which LibTorch reads
/// the offsets on the host.
bool is_one_kernel(const std::string& name) {
  const size_t at = name.rfind("sm_");
  if (at == std::string::npos) return false;
  int architecture = 0;
  std::from_chars(name.data() + at + 3, name.data() + name.size(), architecture);
  return architecture / 10 == 9 || architecture / 10 == 10;
}

/// The number of bf16 elements in 16 bytes. LibTorch's grouped product takes sizes that
/// are multiples of 16 bytes.
constexpr int64_t kAligned = 8;

/// Returns whether LibTorch's grouped product takes this factor: each row or column
/// begins at a multiple of 16 bytes.
bool is_aligned(const at::Tensor& x) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0 &&
         std::ranges::all_of(x.strides(), [](int64_t stride) {
           return stride == 1 || stride % kAligned == 0;
         });
}

/// Returns whether LibTorch's grouped product takes the stack [E, n, K] in a forward and
/// in a backward. In the backward the other factor is dy, or a copy of dy, whose rows of
/// n elements have to be aligned too.
bool is_taken(const at::Tensor& stack) {
  return is_aligned(stack) && stack.size(1) % kAligned == 0;
}

/// Returns whether one operator multiplies the rows x of all experts with the experts'
/// stacks. LibTorch's operator is used on GPUs alone: on other devices it is a loop.
bool has_grouped_product(const at::Tensor& x, const std::vector<at::Tensor>& stacks) {
  if (stacks.empty()) return false;
  if (fused::supports(x, fused::grouped_product)) return true;
  return x.is_cuda() && x.scalar_type() == at::kBFloat16 && x.size(0) > 0 &&
         kGroupedMm.serves(x.device()) && std::ranges::all_of(stacks, is_taken);
}

/// Returns x weights[e] for the rows of each expert. x is [R, K], weights [E, K, N].
at::Tensor grouped_product(const at::Tensor& x, const at::Tensor& offsets,
                           const at::Tensor& weights) {
  if (fused::supports(x, fused::grouped_product)) {
    at::Tensor y = at::empty({x.size(0), weights.size(2)}, x.options());
    fused::grouped_product(x, offsets, weights, y);
    return y;
  }
  return kGroupedMm
      .call({{"self", is_aligned(x) ? x : x.contiguous()},
             {"mat2", weights},
             {"offs", offsets.narrow(0, 1, weights.size(0))}})[0]
      .toTensor();
}

// ---- One expert after another

at::Tensor projected_by_experts(const at::Tensor& x, const GroupedSaved& s) {
  at::Tensor y = at::empty({x.size(0), s.width()}, x.options());
  for (const auto& [expert, first, count] : rows_of_experts(s.offsets)) {
    int64_t from = 0;
    for (const tensor::ParameterPtr& w : s.weights[expert]) {
      const int64_t n = w->slice().extent[0];
      y.narrow(0, first, count)
          .narrow(1, from, n)
          .copy_(linear_product(x.narrow(0, first, count), w->weight()));
      from += n;
    }
  }
  return y;
}

at::Tensor gradient_by_experts(const at::Tensor& dy, const GroupedSaved& s) {
  const int64_t features = s.weights.front().front()->slice().extent[1];
  at::Tensor dx = at::empty({dy.size(0), features}, dy.options());
  for (const auto& [expert, first, count] : rows_of_experts(s.offsets)) {
    at::Tensor sum;
    int64_t from = 0;
    for (const tensor::ParameterPtr& w : s.weights[expert]) {
      const int64_t n = w->slice().extent[0];
      const at::Tensor part = product(
          dy.narrow(0, first, count).narrow(1, from, n).contiguous(), w->weight());
      sum = sum.defined() ? sum.add_(part) : part;
      from += n;
    }
    dx.narrow(0, first, count).copy_(sum);
  }
  return dx;
}

void accumulate_by_experts(const ExpertWeights& weights, const at::Tensor& offsets,
                           const at::Tensor& x, const at::Tensor& dy) {
  for (const auto& [expert, first, count] : rows_of_experts(offsets)) {
    int64_t from = 0;
    for (const tensor::ParameterPtr& w : weights[expert]) {
      const int64_t n = w->slice().extent[0];
      if (!w->frozen()) {
        accumulate_weight_gradient(
            {w}, x.narrow(0, first, count),
            dy.narrow(0, first, count).narrow(1, from, n).contiguous());
      }
      from += n;
    }
  }
}

// ---- Whichever of the two forms applies

/// Returns the stacks of weights, or none if the experts are computed one after
/// another.
std::vector<at::Tensor> weights_of(const GroupedSaved& s) {
  if (!s.fused) return {};
  return stacks_of(of_all(s.weights, [](const auto& w) { return w.weight(); }));
}

/// Returns the rows' products, [R, N].
at::Tensor projected(const at::Tensor& x, const GroupedSaved& s) {
  const auto stacks = weights_of(s);
  if (!has_grouped_product(x, stacks)) return projected_by_experts(x, s);
  tensor_list parts;
  for (const at::Tensor& stack : stacks) {
    parts.push_back(grouped_product(x, s.offsets, stack.transpose(1, 2)));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, 1);
}

/// Returns the gradient of the rows, [R, K], for dy [R, N].
at::Tensor gradient_of_rows(const at::Tensor& dy, const GroupedSaved& s) {
  const auto stacks = weights_of(s);
  if (!has_grouped_product(dy, stacks)) return gradient_by_experts(dy, s);
  at::Tensor sum;
  for_stacks(stacks, dy, [&](const at::Tensor& stack, const at::Tensor& of_stack) {
    const at::Tensor part = grouped_product(of_stack, s.offsets, stack);
    sum = sum.defined() ? sum.add_(part) : part;
  });
  return sum;
}

/// Adds the gradients of the weights. LibTorch's grouped product would round the
/// gradients to bf16 before they are added, so that a GPU takes Longhaul's own kernel.
void accumulate(const ExpertWeights& weights, const at::Tensor& offsets, bool fused,
                const at::Tensor& x, const at::Tensor& dy) {
  const at::NoGradGuard no_grad;
  const bool thawed = holds_for_all(weights, [](const auto& w) { return !w.frozen(); });
  if (!fused || !thawed || !fused::supports(x, fused::op<kernels::GroupedGradient>)) {
    return accumulate_by_experts(weights, offsets, x, dy);
  }
  const bool unset = holds_for_all(weights, [](const auto& w) { return w.grad_unset(); });
  const auto stacks = stacks_of(of_all(weights, [&](const tensor::Parameter& w) {
    return unset ? w.grad_to_write() : w.grad();
  }));
  for_stacks(stacks, dy, [&](const at::Tensor& stack, const at::Tensor& of_stack) {
    fused::op<kernels::GroupedGradient>(of_stack, x, offsets, /*add=*/!unset, stack);
  });
  if (!stacks.empty()) return;
  if (unset) of_all(weights, [](const auto& w) { return w.grad_to_write().zero_(); });
  accumulate_by_experts(weights, offsets, x, dy);
}

/// Returns the columns of y for each projection, each a tensor of its own for autograd.
tensor_list columns_of(const at::Tensor& y, const GroupedSaved& s) {
  tensor_list parts;
  int64_t from = 0;
  for (size_t i = 0; i < s.weights.front().size(); ++i) {
    parts.push_back(y.narrow(1, from, s.width(i)).detach());
    from += s.width(i);
  }
  return parts;
}

struct GroupedNode : Function<GroupedNode> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& x,
                             GroupedSaved kept) {
    if (!kept.frozen()) {  // frozen weights have no gradient
      if (kept.again) {
        kept.again->hold();
      } else {
        ctx->save_for_backward({x});
      }
    }
    tensor_list parts = columns_of(projected(x, kept), kept);
    save(ctx, std::move(kept));
    return parts;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    auto& s = saved<GroupedSaved>(ctx);
    const at::Tensor dy = matrix_of_columns(grads);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) dx = gradient_of_rows(dy, s);
    if (!s.frozen()) {
      const LinearInput x = s.again ? LinearInput(at::Tensor(), std::move(s.again))
                                    : LinearInput(ctx->get_saved_variables()[0]);
      s.gradients->push(
          [weights = s.weights, offsets = s.offsets, fused = s.fused](
              const at::Tensor& rows, const at::Tensor& of) {
            accumulate(weights, offsets, fused, rows, of);
          },
          x, dy);
    }
    return {dx, Variable()};
  }
};

}  // namespace

std::vector<at::Tensor> grouped_linear(const LinearInput& rows, const at::Tensor& offsets,
                                       const ExpertWeights& weights,
                                       const WeightGradientsPtr& gradients, bool fused) {
  LH_CHECK(!weights.empty() && rows.x.dim() == 2 &&
               rows.x.size(1) == weights.front().front()->slice().extent[1] &&
               offsets.numel() == static_cast<int64_t>(weights.size()) + 1,
           "grouped linear", "{} experts with {} offsets, and rows of {} features",
           weights.size(), offsets.numel(), rows.x.size(-1));
  GroupedSaved kept{weights, offsets, gradients, rows.again, fused};
  if (!at::GradMode::is_enabled()) return columns_of(projected(rows.x, kept), kept);
  return GroupedNode::apply(rows.x, std::move(kept));
}

std::string describe_offset_waits(at::ScalarType type, at::Device device,
                                  const std::string& name, bool fused,
                                  const std::vector<int64_t>& sizes) {
  if (device.is_cpu()) return {};
  if (!fused) return "run.fused is false";
  const bool adds = fused::op<kernels::GroupedGradient>.serves(device);
  if (fused::grouped_product.serves(device) && adds) return {};
  if (!device.is_cuda()) return fmt::format("{} has no grouped product", name);
  if (type != at::kBFloat16) {
    return "LibTorch's grouped product is in bf16 alone, which precision.compute chooses";
  }
  // Each size is the number of columns of some projection's matrix, and so the distance
  // between its rows.
  const auto odd =
      std::ranges::find_if(sizes, [](int64_t size) { return size % kAligned != 0; });
  if (odd != sizes.end()) {
    return fmt::format(
        "LibTorch's grouped product takes sizes that are multiples of {}, and matrices "
        "of experts have {} rows or columns on a rank; the model's sizes and parallel.tp "
        "decide about them",
        kAligned, *odd);
  }
  if (!kGroupedMm.serves(device)) return kGroupedMm.obstacle(device);
  if (!is_one_kernel(name)) {
    return fmt::format(
        "LibTorch's grouped product is one kernel on sm_90 and sm_100, and a loop on {}",
        name);
  }
  return adds ? "" : "the gradients of weights have no kernel here";
}

}  // namespace longhaul::ops
