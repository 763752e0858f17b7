#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <vector>

#include "longhaul/ops/fused/fused.h"
#include "tests/accelerator/counters.h"
#include "tests/accelerator/fallback.h"
#include "tests/accelerator/narrow.h"
#include "tests/support/flash_reference.h"

// Kernels that the program asks a device for, each one launch: the program's own
// operators; LibTorch's flash attention, and its product in bf16 that is added to an fp32
// matrix. With SOFTDEV_COMPOSITE=1 there are none of them, and the
// program runs its composite forms.

namespace longhaul::softdev {
namespace {

using c10::DispatchKey;
using ops::reference::FlashCall, ops::reference::Given;
using torch::jit::Stack;

at::Tensor wide(const Given& given, const char* name) {
  return given[name].toTensor().to(at::kFloat);
}

FlashCall flash_call(const Given& given) {
  return {given, [&](const std::string& name) { return wide(given, name.c_str()); }};
}

void flash_forward(const c10::OperatorHandle& op, Stack* stack) {
  const Given given{op, *stack};
  const auto [out, lse] = flash_call(given).forward();
  const auto type = given["query"].toTensor().scalar_type();
  given.give(stack, {out.to(type), lse.contiguous(), at::zeros({2}, at::kUInt64),
                     at::zeros({0}, at::kUInt64), at::Tensor()});
}

void flash_backward(const c10::OperatorHandle& op, Stack* stack) {
  const Given given{op, *stack};
  const auto type = given["query"].toTensor().scalar_type();
  std::vector<c10::IValue> results;
  for (const at::Tensor& g : flash_call(given).backward(
           wide(given, "grad_out"), wide(given, "out"), wide(given, "logsumexp"))) {
    results.emplace_back(g.to(type).contiguous());
  }
  given.give(stack, std::move(results));
}

void wide_addmm(const c10::OperatorHandle& op, Stack* stack) {
  const Given given{op, *stack};
  at::Tensor out = given["out"].toTensor();
  TORCH_CHECK(out.data_ptr() == given["self"].toTensor().data_ptr() &&
                  out.scalar_type() == at::kFloat,
              "addmm with another dtype, but not into an fp32 matrix of its own");
  out.addmm_(wide(given, "mat1"), wide(given, "mat2"), given["beta"].toScalar(),
             given["alpha"].toScalar());
  given.give(stack, {out});
}

/// Adds row by row, and in a row token by token, because index_add_ of a CPU goes in this
/// order.
void embedding_gradient(const at::Tensor& dy, const at::Tensor& rows,
                        const at::Tensor& order, const at::Tensor& grad) {
  const at::Tensor here =
      rows.ge(0).logical_and(rows.lt(grad.size(0))).nonzero().squeeze(1);
  const at::Tensor tokens = order.index_select(0, here);
  at::Tensor(grad).index_add_(0, rows.index_select(0, here),
                              dy.to(at::kFloat).index_select(0, tokens));
}

void gelu_forward(const at::Tensor& x, bool tanh, const at::Tensor& y) {
  y.copy_(at::gelu(x, tanh ? "tanh" : "none"));
}

void gelu_backward(const at::Tensor& dy, const at::Tensor& x, bool tanh,
                   const at::Tensor& dx) {
  dx.copy_(at::gelu_backward(dy, x, tanh ? "tanh" : "none"));
}

void merge_attention(const at::Tensor& part, const at::Tensor& part_lse,
                     const at::Tensor& merged, const at::Tensor& merged_lse) {
  const at::Tensor now = at::logaddexp(merged_lse, part_lse);
  const auto factors = [&](const at::Tensor& of) {
    return at::exp(of - now).nan_to_num_(0.0).transpose(1, 2).unsqueeze(-1);
  };
  merged.mul_(factors(merged_lse)).addcmul_(part.to(at::kFloat), factors(part_lse));
  merged_lse.copy_(now);
}

class Kernels {
 public:
  Kernels() {
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      const auto op = c10::Dispatcher::singleton().findOp(name);
      if (name.name.starts_with("longhaul::") &&
          op->hasKernelForDispatchKey(DispatchKey::CPU)) {
        add<&cpu_kernel>("longhaul", name);
      }
    }
    // The CPU has no kernels for the operators below.
    add_typed<&embedding_gradient>(ops::fused::op<kernels::EmbeddingGradient>);
    add_typed<&gelu_forward>(ops::fused::op<kernels::GeluForward>);
    add_typed<&gelu_backward>(ops::fused::op<kernels::GeluBackward>);
    add_typed<&merge_attention>(ops::fused::op<kernels::MergeAttention>);
    add<&of_host<&flash_forward>>("aten", {"aten::_flash_attention_forward", ""});
    add<&of_host<&flash_backward>>("aten", {"aten::_flash_attention_backward", ""});
    add<&of_host<&wide_addmm>>("aten", {"aten::addmm", "dtype_out"});
  }

 private:
  template <HostKernel* kernel>
  static void of_host(const c10::OperatorHandle& op, Stack* stack) {
    run_on_device(op, stack, kernel);
  }
  /// Calls `kernel`, a function of the operator's arguments, with the arguments on the
  /// stack.
  template <auto kernel>
  static void unboxed(const c10::OperatorHandle& op, Stack* stack) {
    c10::KernelFunction::makeFromUnboxedRuntimeFunction(kernel).callBoxed(
        op, c10::DispatchKeySet(DispatchKey::CPU), stack);
  }
  template <auto kernel, typename Operator>
  void add_typed(const Operator& /*op*/) {
    add<&of_host<&unboxed<kernel>>>("longhaul", {Operator::kFullName.chars.data(), ""});
  }
  static std::string text(const c10::OperatorName& name) {
    return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  }
  template <HostKernel* kernel>
  void add(const char* space, const c10::OperatorName& name) {
    auto& library = *all_.emplace_back(std::make_unique<torch::Library>(
        torch::Library::IMPL, space, DispatchKey::PrivateUse1, __FILE__, __LINE__));
    library.impl(text(name).c_str(), torch::CppFunction::makeFromBoxedFunction<kernel>());
  }

  std::vector<std::unique_ptr<torch::Library>> all_;
};

/// The kernels are registered when the library is loaded, after the program's own
/// operators.
const std::unique_ptr<Kernels> kKernels =
    setting("SOFTDEV_COMPOSITE", 0) != 0 || is_narrow() ? nullptr
                                                        : std::make_unique<Kernels>();

}  // namespace
}  // namespace longhaul::softdev
