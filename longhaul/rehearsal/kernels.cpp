#include "longhaul/rehearsal/kernels.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/rehearsal/device.h"

namespace longhaul::rehearsal {
namespace {

using c10::DispatchKey;
using c10::IValue;
using torch::jit::Stack;

/// Returns the names of operations that the device lacks, set before any operation.
std::set<std::string>& lacking() {
  static std::set<std::string> names;
  return names;
}

/// What was set by set_host().
struct Host {
  HostRead read;
  HostWait wait;
};

Host& host_of_thread() {
  thread_local Host host;
  return host;
}

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

bool is_lacking(const c10::OperatorName& name) {
  const std::set<std::string>& names = lacking();
  return !names.empty() && (names.contains(name.name) || names.contains(full_name(name)));
}

[[noreturn]] void fail_lacking(const c10::OperatorName& name) {
  fail_config("rehearse",
              "the device lacks {}, which the run needs; register a kernel of it (docs/"
              "devices.md), or change the settings that lead to it",
              full_name(name));
}

bool is_fake(const at::Tensor& t) { return t.defined() && t.is_privateuseone(); }

at::Tensor tensor_over(c10::Storage storage, const at::Tensor& like, DispatchKey key) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                    like.storage_offset());
  return made;
}

at::Tensor fresh(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  return at::detail::empty_strided_generic(
      sizes, strides, c10::GetAllocator(at::kPrivateUse1),
      c10::DispatchKeySet(DispatchKey::PrivateUse1), type);
}

at::Tensor fresh(at::IntArrayRef sizes, at::ScalarType type,
                 std::optional<at::MemoryFormat> format = std::nullopt) {
  return at::detail::empty_generic(sizes, c10::GetAllocator(at::kPrivateUse1),
                                   c10::DispatchKeySet(DispatchKey::PrivateUse1), type,
                                   format);
}

/// A boxed call's arguments by their names.
struct Given {
  const c10::OperatorHandle& op;
  Stack& stack;

  const IValue& operator[](const std::string& name) const {
    const auto& all = op.schema().arguments();
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].name() == name) return stack[stack.size() - all.size() + i];
    }
    LH_ASSERT(false, "{} has no argument {}", op.schema().name(), name);
    std::abort();
  }
  const at::Tensor& tensor(const std::string& name) const {
    return (*this)[name].toTensor();
  }
  void give(std::vector<IValue> values) const {
    stack.resize(stack.size() - op.schema().arguments().size());
    stack.insert(stack.end(), values.begin(), values.end());
  }
};

/// One call of an operation: turns the arguments into meta tensors, lets LibTorch's
/// kernel for these compute the shapes, and turns the results back.
class ShapeCall {
 public:
  ShapeCall(const c10::OperatorHandle& op, Stack& stack) : op_(op), stack_(stack) {}

  void run() {
    const size_t arguments = op_.schema().arguments().size();
    for (size_t i = stack_.size() - arguments; i < stack_.size(); ++i) take(stack_[i]);
    op_.callBoxedForDispatchKey(DispatchKey::Meta, stack_);
    for (const Alias& alias : aliases_) follow_resize(alias);
    const size_t results = op_.schema().returns().size();
    for (size_t i = stack_.size() - results; i < stack_.size(); ++i) give(stack_[i]);
  }

 private:
  struct Alias {
    at::Tensor fake;
    at::Tensor meta;
  };

  at::Tensor taken(const at::Tensor& t) {
    if (!t.defined()) return t;
    const bool is_scalar = t.is_cpu() && t.dim() == 0;
    if (!is_fake(t)) {
      // LibTorch copies indices of the host to the device.
      const bool may_index = op_.schema().name().find("index") != std::string::npos;
      LH_CHECK(is_scalar || may_index, "rehearse",
               "{} gets a tensor of {} beside tensors of the device: the program would "
               "fail on a device; report it with the run's file",
               op_.schema().name(), t.device().str());
      if (is_scalar) return t;
    }
    c10::Storage& storage = storages_[t.storage().unsafeGetStorageImpl()];
    if (!storage) {
      storage = {c10::Storage::use_byte_size_t(), t.storage().nbytes(),
                 c10::DataPtr(nullptr, c10::Device(c10::DeviceType::Meta)),
                 c10::GetAllocator(c10::DeviceType::Meta), /*resizable=*/true};
    }
    at::Tensor alias = tensor_over(storage, t, DispatchKey::Meta);
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) {
      alias.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    aliases_.push_back({t, alias});
    return alias;
  }

  void take(IValue& value) {
    if (value.isTensor()) {
      value = taken(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> all = value.toTensorVector();
      for (at::Tensor& t : all) t = taken(t);
      value = IValue(all);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> all;
      for (const IValue& each : value.toListRef()) {
        all.push_back(each.isNone() ? std::nullopt
                                    : std::optional(taken(each.toTensor())));
      }
      value = all;
    } else if (value.isDevice() && value.toDevice().is_privateuseone()) {
      value = c10::Device(c10::DeviceType::Meta);
    }
  }

  /// Gives an output that the kernel has made larger the room.
  static void follow_resize(const Alias& alias) {
    if (alias.meta.sizes() == alias.fake.sizes() &&
        alias.meta.strides() == alias.fake.strides()) {
      return;
    }
    const size_t needed = alias.meta.storage().nbytes();
    if (needed > alias.fake.storage().nbytes()) {
      at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(alias.fake.storage(),
                                                               needed);
    }
    alias.fake.unsafeGetTensorImpl()->set_sizes_and_strides(
        alias.meta.sizes(), alias.meta.strides(), alias.meta.storage_offset());
  }

  at::Tensor given(const at::Tensor& t) const {
    if (!t.defined()) return t;
    for (const Alias& alias : aliases_) {
      if (t.unsafeGetTensorImpl() == alias.meta.unsafeGetTensorImpl()) return alias.fake;
    }
    for (const Alias& alias : aliases_) {
      if (t.storage().unsafeGetStorageImpl() ==
          alias.meta.storage().unsafeGetStorageImpl()) {
        return tensor_over(alias.fake.storage(), t, DispatchKey::PrivateUse1);
      }
    }
    return fresh(t.sizes(), t.strides(), t.scalar_type());
  }

  void give(IValue& value) const {
    if (value.isTensor()) {
      value = given(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> all = value.toTensorVector();
      for (at::Tensor& t : all) t = given(t);
      value = IValue(all);
    }
  }

  const c10::OperatorHandle& op_;
  Stack& stack_;
  std::map<c10::StorageImpl*, c10::Storage> storages_;
  std::vector<Alias> aliases_;
};

// ---- Shapes of operations for which LibTorch has no kernel of meta tensors.

at::DimVector broadcast(const at::Tensor& a, const at::Tensor& b) {
  return at::infer_size_dimvector(a.sizes(), b.sizes());
}

void give_out(const Given& given, at::IntArrayRef sizes) {
  const at::Tensor out = given.tensor("out");
  if (out.sizes() != sizes) out.resize_(sizes);
  given.give({out});
}

void shape_where(const Given& given) {
  const at::Tensor &a = given.tensor("self"), &b = given.tensor("other");
  const at::DimVector sizes =
      at::infer_size_dimvector(given.tensor("condition").sizes(), broadcast(a, b));
  given.give({fresh(sizes, at::result_type(a, b))});
}

void shape_self(const Given& given) { given.give({given.tensor("self")}); }

void shape_unary_out(const Given& given) {
  give_out(given, given.tensor("self").sizes().vec());
}

void shape_binary_out(const Given& given) {
  give_out(given, broadcast(given.tensor("self"), given.tensor("other")));
}

void shape_binary(const Given& given) {
  const at::Tensor &a = given.tensor("self"), &b = given.tensor("other");
  given.give({fresh(broadcast(a, b), at::result_type(a, b))});
}

at::DimVector selected(const Given& given) {
  const at::Tensor& self = given.tensor("self");
  const int64_t dim = given["dim"].toInt();
  at::DimVector sizes(self.sizes());
  if (!sizes.empty()) {
    sizes[static_cast<size_t>(dim < 0 ? dim + self.dim() : dim)] =
        given.tensor("index").numel();
  }
  return sizes;
}

void shape_index_select(const Given& given) {
  given.give({fresh(selected(given), given.tensor("self").scalar_type())});
}

void shape_index_select_out(const Given& given) { give_out(given, selected(given)); }

void shape_searchsorted(const Given& given) {
  given.give({fresh(given.tensor("self").sizes(),
                    given["out_int32"].toBool() ? at::kInt : at::kLong)});
}

/// Gives the shapes of the norm of which LibTorch composes that of layers: one mean and
/// one deviation for each of the second dim.
void shape_batch_norm(const Given& given) {
  const at::Tensor& x = given.tensor("input");
  given.give({fresh(x.sizes(), x.scalar_type()), fresh({x.size(1)}, x.scalar_type()),
              fresh({x.size(1)}, x.scalar_type())});
}

void shape_layer_norm_backward(const Given& given) {
  const auto mask = given["output_mask"].toBoolList();
  std::vector<IValue> results;
  for (size_t i = 0; i < 3; ++i) {
    const IValue& like = given[i == 0 ? "input" : "weight"];
    const bool wanted = mask.get(i) && like.isTensor() && like.toTensor().defined();
    results.emplace_back(
        wanted ? fresh(like.toTensor().sizes(), like.toTensor().scalar_type())
               : at::Tensor());
  }
  given.give(std::move(results));
}

using Shape = void(const Given&);

const std::unordered_map<std::string, Shape*>& own_shapes() {
  static const std::unordered_map<std::string, Shape*> shapes = {
      {"aten::abs.out", &shape_unary_out},
      {"aten::floor_divide", &shape_binary},
      {"aten::index_select", &shape_index_select},
      {"aten::index_select.out", &shape_index_select_out},
      {"aten::logical_and.out", &shape_binary_out},
      {"aten::logical_not.out", &shape_unary_out},
      {"aten::logical_or.out", &shape_binary_out},
      {"aten::masked_fill_.Scalar", &shape_self},
      {"aten::masked_fill_.Tensor", &shape_self},
      {"aten::nan_to_num.out", &shape_unary_out},
      {"aten::native_batch_norm", &shape_batch_norm},
      {"aten::native_layer_norm_backward", &shape_layer_norm_backward},
      {"aten::searchsorted.Tensor", &shape_searchsorted},
      {"aten::where.self", &shape_where},
  };
  return shapes;
}

void shape_kernel(const c10::OperatorHandle& op, Stack* stack) {
  const c10::OperatorName& name = op.operator_name();
  if (is_lacking(name)) fail_lacking(name);
  const auto own = own_shapes().find(full_name(name));
  if (own != own_shapes().end()) return own->second({op, *stack});
  ShapeCall(op, *stack).run();
}

// ---- The operations that a device must have itself.

at::Tensor empty_memory(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                        std::optional<c10::Layout>, std::optional<c10::Device>,
                        std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return fresh(size, dtype.value_or(c10::get_default_dtype_as_scalartype()), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<c10::Layout>,
                         std::optional<c10::Device>, std::optional<bool>) {
  return fresh(size, stride, dtype.value_or(c10::get_default_dtype_as_scalartype()));
}

/// The host looks at no larger copy in fp32 or bf16: these are activations that wait in
/// its memory, which therefore keep no pages.
constexpr size_t kLookedAtBytes = size_t{1} << 20;

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (!non_blocking && (from.is_cpu() || to.is_cpu())) note_host_wait();
  if (!to.is_cpu() || to.numel() == 0) return to;
  const bool wide = to.scalar_type() == at::kLong;
  const bool counts = wide || to.scalar_type() == at::kInt;
  if (counts || to.scalar_type() == at::kDouble || to.nbytes() <= kLookedAtBytes) {
    to.zero_();
  }
  const HostRead& read = host_of_thread().read;
  if (read && counts && to.is_contiguous() && from.dim() == 1) {
    read(to.data_ptr(), to.numel(), wide);
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

c10::Scalar local_scalar(const at::Tensor& t) {
  note_host_wait();
  if (t.scalar_type() == at::kBool) return false;
  if (c10::isIntegralType(t.scalar_type(), false)) return int64_t{0};
  return 0.0;
}

const at::Tensor& resize(const at::Tensor& t, at::IntArrayRef size,
                         std::optional<at::MemoryFormat>) {
  int64_t count = 1;
  for (const int64_t extent : size) count *= extent;
  const auto needed = static_cast<size_t>(count + t.storage_offset()) * t.itemsize();
  if (needed > t.storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(t.storage(), needed);
  }
  t.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return t;  // NOLINT(bugprone-return-const-ref-from-parameter): as ATen
}

at::Tensor view(const at::Tensor& t, at::IntArrayRef size) {
  return at::native::view(t, size);
}

at::Tensor reshape_alias(const at::Tensor& t, at::IntArrayRef size,
                         at::IntArrayRef stride) {
  return at::native::as_strided_tensorimpl(t, size, stride);
}

at::Tensor as_strided(const at::Tensor& t, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(t, size, stride, offset);
}

at::Tensor& set_storage(at::Tensor& t, at::Storage source, int64_t offset,
                        at::IntArrayRef size, at::IntArrayRef stride) {
  t.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return t;
}

at::Tensor& set_tensor(at::Tensor& t, const at::Tensor& source) {
  return set_storage(t, source.storage(), source.storage_offset(), source.sizes(),
                     source.strides());
}

void record_stream(at::Tensor&, c10::Stream) {}

// ---- Kernels that the program asks a device for.

/// Checks the operands of one of the program's own operators, whose results are among
/// its arguments.
void own_operator(const c10::OperatorHandle& op, Stack* stack) {
  const size_t arguments = op.schema().arguments().size();
  for (size_t i = stack->size() - arguments; i < stack->size(); ++i) {
    const IValue& value = (*stack)[i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    LH_CHECK(is_fake(value.toTensor()), "rehearse", "{} gets a tensor of {}",
             op.schema().name(), value.toTensor().device().str());
  }
  stack->resize(stack->size() - arguments);
}

void flash_forward(const c10::OperatorHandle& op, Stack* stack) {
  const Given given{op, *stack};
  const at::Tensor& q = given.tensor("query");
  const IValue& bounds = given["cum_seq_q"];
  const bool documents = !bounds.isNone() && bounds.toTensor().defined();
  const at::Tensor lse = documents ? fresh({q.size(1), q.size(0)}, at::kFloat)
                                   : fresh({q.size(0), q.size(2), q.size(1)}, at::kFloat);
  given.give({fresh(q.sizes(), q.scalar_type()), lse, fresh({2}, at::kUInt64),
              fresh({0}, at::kUInt64), at::Tensor()});
}

void flash_backward(const c10::OperatorHandle& op, Stack* stack) {
  const Given given{op, *stack};
  std::vector<IValue> results;
  for (const char* name : {"query", "key", "value"}) {
    const at::Tensor& of = given.tensor(name);
    results.emplace_back(fresh(of.sizes(), of.scalar_type()));
  }
  given.give(std::move(results));
}

void wide_addmm(const c10::OperatorHandle& op, Stack* stack) {
  const Given given{op, *stack};
  const at::Tensor &a = given.tensor("mat1"), &b = given.tensor("mat2"),
                   &out = given.tensor("out");
  LH_CHECK(a.size(1) == b.size(0) && out.size(0) == a.size(0) && out.size(1) == b.size(1),
           "rehearse", "a product of [{}, {}] and [{}, {}] into [{}, {}]", a.size(0),
           a.size(1), b.size(0), b.size(1), out.size(0), out.size(1));
  given.give({out});
}

/// Registrations, which live as long as the process.
class Registered {
 public:
  Registered() {
    torch::Library& aten = library("aten");
    const auto add = [&](const char* name, auto kernel) {
      if (is_lacking(c10::OperatorName(std::string("aten::") + name, ""))) return;
      aten.impl(name, kernel);
    };
    add("empty.memory_format", empty_memory);
    add("empty_strided", empty_strided);
    add("_copy_from", copy_from);
    add("_copy_from_and_resize", copy_from_and_resize);
    add("_local_scalar_dense", local_scalar);
    add("resize_", resize);
    add("view", view);
    add("_reshape_alias", reshape_alias);
    add("as_strided", as_strided);
    add("set_.source_Storage_storage_offset", set_storage);
    add("set_.source_Tensor", set_tensor);
    add("record_stream", record_stream);
    library("_").fallback(torch::CppFunction::makeFromBoxedFunction<&shape_kernel>());
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      if (!name.name.starts_with("longhaul::") || is_lacking(name)) continue;
      library("longhaul")
          .impl(full_name(name).c_str(),
                torch::CppFunction::makeFromBoxedFunction<&own_operator>());
    }
    add_boxed<&flash_forward>({"aten::_flash_attention_forward", ""});
    add_boxed<&flash_backward>({"aten::_flash_attention_backward", ""});
    add_boxed<&wide_addmm>({"aten::addmm", "dtype_out"});
  }

 private:
  torch::Library& library(const char* space) {
    return *all_.emplace_back(std::make_unique<torch::Library>(
        torch::Library::IMPL, space, DispatchKey::PrivateUse1, __FILE__, __LINE__));
  }
  template <auto kernel>
  void add_boxed(const c10::OperatorName& name) {
    if (is_lacking(name) || !c10::Dispatcher::singleton().findSchema(name)) return;
    library("aten").impl(full_name(name).c_str(),
                         torch::CppFunction::makeFromBoxedFunction<kernel>());
  }

  std::vector<std::unique_ptr<torch::Library>> all_;
};

}  // namespace

void set_host(HostRead read, HostWait wait) {
  host_of_thread() = {std::move(read), std::move(wait)};
}

void note_host_wait() {
  if (host_of_thread().wait) host_of_thread().wait();
}

void check_names(const std::set<std::string>& operations) {
  std::set<std::string> known;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    known.insert(name.name);
    known.insert(full_name(name));
  }
  for (const std::string& name : operations) {
    if (known.contains(name)) continue;
    const auto near =
        nearest_name(name, std::vector<std::string>(known.begin(), known.end()));
    fail_input("rehearse",
               "no operation has the name {}{}; write aten::mm or "
               "longhaul::{}",
               name, near ? fmt::format(", did you mean {}", *near) : "", "NAME");
  }
}

void add_kernels(const std::set<std::string>& lacks) {
  lacking() = lacks;
  static const Registered registered;
}

}  // namespace longhaul::rehearsal
