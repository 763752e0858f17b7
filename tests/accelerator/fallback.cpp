#include "tests/accelerator/fallback.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/accelerator/counters.h"
#include "tests/accelerator/memory.h"
#include "tests/accelerator/narrow.h"

namespace longhaul::softdev {
namespace {

/// Operations whose result has a shape that depends on data, for which the host waits.
constexpr std::array<std::string_view, 8> kWaiting = {
    "aten::nonzero",  "aten::masked_select",    "aten::_unique2",
    "aten::_unique",  "aten::unique_dim",       "aten::unique_consecutive",
    "aten::bincount", "aten::repeat_interleave"};

at::Tensor tensor_over(const c10::Storage& storage, const at::Tensor& like,
                       c10::DispatchKey key) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                    like.storage_offset());
  return made;
}

/// Operations that read only as many bytes of their first tensor as their result has.
constexpr std::array<std::string_view, 4> kPicking = {
    "aten::embedding", "aten::index_select", "aten::gather", "aten::index"};

/// Operations that change only as many bytes of their first tensor as their last input
/// has. "index_add_" arrives as index_add with its first tensor as the result.
constexpr std::array<std::string_view, 2> kAdding = {"aten::index_add",
                                                     "aten::scatter_add"};

/// Names of arguments of the program's operators that are read before they are written,
/// whatever their position is.
constexpr std::array<std::string_view, 7> kUpdated = {
    "master", "exp_avg", "exp_avg_sq", "sums", "into", "merged", "merged_lse"};

/// Returns true where a tensor that is written is read before.
bool reads_too(const c10::FunctionSchema& schema, size_t argument) {
  const std::string& name = schema.name();
  if (!name.starts_with("longhaul::")) {
    return argument == 0 && name.ends_with('_') && name.find("fill_") == name.npos &&
           name.find("zero_") == name.npos && name.find("copy_") == name.npos;
  }
  // In the program's operators results come behind all inputs, except updated states.
  if (std::ranges::find(kUpdated, schema.arguments()[argument].name()) !=
      kUpdated.end()) {
    return true;
  }
  for (size_t i = argument + 1; i < schema.arguments().size(); ++i) {
    const c10::Argument& later = schema.arguments()[i];
    const bool is_tensor = later.type()->isSubtypeOf(*c10::TensorType::get());
    if (is_tensor && later.alias_info() == nullptr) return true;
  }
  return false;
}

c10::Storage cpu_storage(const c10::Storage& storage) {
  return {c10::Storage::use_byte_size_t(), storage.nbytes(),
          c10::DataPtr(kernel_address(storage.data()), c10::DeviceType::CPU),
          c10::GetAllocator(c10::DeviceType::CPU), /*resizable=*/true};
}

bool is_device(const at::Tensor& t) { return t.defined() && t.is_privateuseone(); }

/// One call of an operation: turns its arguments into those of the CPU's kernel, and the
/// results back.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack, HostKernel* kernel)
      : op_(op), stack_(stack), kernel_(kernel), name_(op.schema().name()) {}

  void run() {
    check_known(name_);
    const at::DisableRecordFunctionGuard no_operations_of_the_cpu;
    const auto& arguments = op_.schema().arguments();
    const size_t first = stack_.size() - arguments.size();
    for (size_t i = 0; i < arguments.size(); ++i) find_device(stack_[first + i]);
    const c10::DeviceGuard guard(device_);
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto* alias = arguments[i].alias_info();
      writes_ = alias != nullptr && alias->isWrite();
      updates_ = writes_ && reads_too(op_.schema(), i);
      take(stack_[first + i]);
    }
    Stream& stream = current_stream(device_.index());
    const bool is_view = views();
    count_rows();
    if (!is_view) begin_kernel(stream, name_, uses_);
    kernel_(op_, &stack_);
    for (Alias& alias : aliases_) follow_resize(alias);
    bool tells_host = waits_ || std::ranges::find(kWaiting, name_) != kWaiting.end();
    for (size_t i = stack_.size() - op_.schema().returns().size(); i < stack_.size();
         ++i) {
      tells_host = give(stack_[i], stream) || tells_host;
    }
    if (tells_host) {
      stream.queue.drain();
      host_saw(stream.seen);
      count_synchronization(name_);
    }
  }

 private:
  struct Alias {
    at::Tensor device;
    at::Tensor cpu;
    const void* data;
  };

  /// Returns true where arguments are only read and a result is a view of an argument.
  bool views() const {
    const auto& returns = op_.schema().returns();
    return std::ranges::any_of(returns, [](const c10::Argument& result) {
      return result.alias_info() != nullptr && !result.alias_info()->isWrite();
    });
  }

  /// Counts the bytes that are read or written of a table of which some rows are used.
  void count_rows() {
    const auto is_one_of = [&](const auto& names) {
      return std::ranges::find(names, name_) != names.end() && !uses_.empty();
    };
    picks_ = is_one_of(kPicking);
    if (picks_) uses_.front().moved = 0;
    if (is_one_of(kAdding) && uses_.back().data == uses_.front().data) {
      uses_.front().moved = uses_.back().moved = uses_[uses_.size() - 2].moved;
    }
    // One row of the table for each token is read and written, since all may differ.
    if (name_ == "longhaul::embedding_gradient") {
      const at::Tensor &dy = aliases_.front().cpu, &grad = aliases_.back().cpu;
      uses_.back().moved = 2 * static_cast<size_t>(dy.numel()) * grad.itemsize();
    }
  }

  void find_device(const c10::IValue& value) {
    if (value.isTensor() && is_device(value.toTensor())) {
      device_ = value.toTensor().device();
    } else if (value.isDevice() && value.toDevice().is_privateuseone()) {
      device_ = value.toDevice();
    } else if (value.isTensorList()) {
      for (const at::Tensor& t : value.toTensorVector()) {
        if (is_device(t)) device_ = t.device();
      }
    } else if (value.isList()) {
      for (const c10::IValue& each : value.toListRef()) find_device(each);
    }
    if (!device_.has_index()) device_.set_index(static_cast<int8_t>(current_device()));
  }

  /// Returns true where the operation also takes indices of the CPU. They are copied to
  /// the device, and the host waits for the copy.
  bool indexes() const {
    return name_.starts_with("aten::index") || name_.starts_with("aten::_index");
  }

  at::Tensor taken(const at::Tensor& t, bool in_optional_list) {
    if (!t.defined()) return t;
    if (in_optional_list && t.is_cpu()) waits_ = true;
    if (!is_device(t)) {
      TORCH_CHECK(t.dim() == 0 || (in_optional_list && indexes()), name_,
                  ": expected all tensors on the same device, found ", t.device(),
                  " beside ", device_);
      return t;
    }
    TORCH_CHECK(t.device() == device_, name_, ": tensors on ", t.device(), " and ",
                device_);
    c10::Storage& storage = storages_[t.storage().unsafeGetStorageImpl()];
    if (!storage) storage = cpu_storage(t.storage());
    at::Tensor alias = tensor_over(storage, t, c10::DispatchKey::CPU);
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) {
      alias.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    check_width(t.scalar_type(), name_);
    if (writes_) check_written(t, name_);
    uses_.push_back(use_of(t, writes_));
    if (updates_) *uses_.back().moved *= 2;
    aliases_.push_back({t, alias, alias.storage().data()});
    return alias;
  }

  void take(c10::IValue& value) {
    if (value.isTensor()) {
      value = taken(value.toTensor(), false);
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> all = value.toTensorVector();
      for (at::Tensor& t : all) t = taken(t, false);
      value = c10::IValue(all);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> all;
      for (const c10::IValue& each : value.toListRef()) {
        all.push_back(each.isNone() ? std::nullopt
                                    : std::optional(taken(each.toTensor(), true)));
      }
      value = all;
    } else if (value.isDevice() && value.toDevice().is_privateuseone()) {
      value = c10::Device(c10::DeviceType::CPU);
    }
  }

  /// Copies an output that the kernel made larger, and has therefore moved, back to the
  /// device's memory.
  void follow_resize(const Alias& alias) {
    const bool moved = alias.cpu.storage().data() != alias.data;
    if (!moved && alias.cpu.sizes() == alias.device.sizes() &&
        alias.cpu.strides() == alias.device.strides()) {
      return;
    }
    if (moved) {
      at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(
          alias.device.storage(), alias.cpu.storage().nbytes());
      std::memcpy(kernel_address(alias.device.storage().data()),
                  alias.cpu.storage().data(), alias.cpu.storage().nbytes());
    }
    alias.device.unsafeGetTensorImpl()->set_sizes_and_strides(
        alias.cpu.sizes(), alias.cpu.strides(), alias.cpu.storage_offset());
  }

  at::Tensor given(const at::Tensor& t, Stream& stream) {
    if (!t.defined()) return t;
    for (const Alias& alias : aliases_) {
      if (t.unsafeGetTensorImpl() == alias.cpu.unsafeGetTensorImpl()) return alias.device;
    }
    for (const Alias& alias : aliases_) {
      if (t.storage().unsafeGetStorageImpl() ==
          alias.cpu.storage().unsafeGetStorageImpl()) {
        return tensor_over(alias.device.storage(), t, c10::DispatchKey::PrivateUse1);
      }
    }
    check_width(t.scalar_type(), name_);
    at::Tensor made = at::detail::empty_strided_generic(
        t.sizes(), t.strides(), c10::GetAllocator(c10::DeviceType::PrivateUse1),
        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), t.scalar_type());
    if (t.numel() == 0) return made;
    // Memory that the kernel made counts as its own write.
    Use use = use_of(made, true);
    if (picks_) *use.moved *= 2;
    note_result(stream, name_, use);
    cpu_alias(made).copy_(t);
    return made;
  }

  /// Returns true where the result is a value of the host.
  bool give(c10::IValue& value, Stream& stream) {
    if (value.isTensor()) {
      value = given(value.toTensor(), stream);
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> all = value.toTensorVector();
      for (at::Tensor& t : all) t = given(t, stream);
      value = c10::IValue(all);
    } else {
      return !value.isNone() && !aliases_.empty();
    }
    return false;
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  HostKernel* kernel_;
  const std::string& name_;
  c10::Device device_{c10::DeviceType::PrivateUse1};
  std::map<c10::StorageImpl*, c10::Storage> storages_;
  std::vector<Alias> aliases_;
  std::vector<Use> uses_;
  bool writes_ = false;  ///< the operation writes the argument that is being taken
  bool updates_ = false;
  bool picks_ = false;
  bool waits_ = false;
};

}  // namespace

at::Tensor cpu_alias(const at::Tensor& t) {
  if (!is_device(t)) return t;
  return tensor_over(cpu_storage(t.storage()), t, c10::DispatchKey::CPU);
}

Use use_of(const at::Tensor& t, bool writes) {
  if (!t.defined() || t.numel() == 0) return {nullptr, 0, writes, 0};
  int64_t last = 0, elements = 1;
  for (int64_t i = 0; i < t.dim(); ++i) {
    last += (t.size(i) - 1) * t.stride(i);
    if (t.stride(i) != 0) elements *= t.size(i);
  }
  const auto* first = static_cast<const std::byte*>(t.storage().data()) +
                      static_cast<size_t>(t.storage_offset()) * t.itemsize();
  return {first, static_cast<size_t>(last + 1) * t.itemsize(), writes,
          static_cast<size_t>(elements) * t.itemsize()};
}

void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                   HostKernel* kernel) {
  Call(op, *stack, kernel).run();
}

void cpu_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_on_device(op, stack, [](const c10::OperatorHandle& of, torch::jit::Stack* on) {
    of.callBoxedForDispatchKey(c10::DispatchKey::CPU, *on);
  });
}

}  // namespace longhaul::softdev
