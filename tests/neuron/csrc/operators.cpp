#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "standin.h"

// The operators that the real backend has in C++: memory, views and copies; and the
// fallback to the CPU of every operator without a kernel.

namespace neuron_standin {
namespace {

c10::Device device_or_current(std::optional<at::Device> device) {
  if (device && device->has_index()) return *device;
  return {kType, static_cast<c10::DeviceIndex>(current_device())};
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const at::ScalarType type = c10::dtype_or_default(dtype);
  check_wide("aten::empty.memory_format", type);
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_generic(size, c10::GetAllocator(kType),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type, format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const at::ScalarType type = c10::dtype_or_default(dtype);
  check_wide("aten::empty_strided", type);
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_strided_generic(
      size, stride, c10::GetAllocator(kType),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat>) {
  int64_t elements = self.storage_offset();
  int64_t count = 1;
  for (const int64_t each : size) count *= each;
  const size_t bytes = static_cast<size_t>(elements + count) * self.itemsize();
  if (count > 0 && bytes > self.storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self.storage(), bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, int64_t offset,
                        at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, storage, offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  if (stride.data() == nullptr || (stride.empty() && !size.empty())) {
    self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  } else {
    self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  }
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage storage) {
  const auto elements = static_cast<int64_t>(storage.nbytes() / self.itemsize());
  return set_storage(self, std::move(storage), 0, {elements}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(),
                     source.strides());
}

at::Scalar local_scalar(const at::Tensor& self) {
  note_executed("aten::_local_scalar_dense");
  check_read("aten::_local_scalar_dense", self);
  return at::native::_local_scalar_dense_cpu(cpu_alias(self));
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool) {
  const std::string name = "aten::copy_";
  const bool to_device = self.is_privateuseone();
  const bool from_device = source.is_privateuseone();
  note_executed(name);
  if (from_device) check_read(name, source);
  if (to_device) {
    check_read(name, self);
    check_write(name, self);
    check_wide(name, self.scalar_type());
  }
  if (from_device) check_wide(name, source.scalar_type());
  if (to_device && from_device &&
      (self.dtype() != source.dtype() || !source.is_contiguous() ||
       !self.is_contiguous() || self.sizes() != source.sizes())) {
    std::string key = name + "(";
    append_form(key, self);
    key += ", ";
    append_form(key, source);
    need_key(name, key + ")");
  }
  at::Tensor to = cpu_alias(self);
  to.copy_(cpu_alias(source));
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  if (self.sizes() != to.sizes()) resize_(to, self.sizes(), std::nullopt);
  cpu_alias(to).copy_(cpu_alias(self));
  return to;
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) {
  return at::native::view(self, size);
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size,
                      at::IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size,
                         at::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

at::Tensor unfold(const at::Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}

void record_stream(at::Tensor&, at::Stream) {}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.operator_name();
  note_fallback(
      name.overload_name.empty() ? name.name : name.name + "." + name.overload_name,
      "it has no kernel on the device");
  at::native::cpu_fallback(op, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  m.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar));
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("view", TORCH_FN(view));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("_reshape_alias", TORCH_FN(reshape_alias));
  m.impl("unfold", TORCH_FN(unfold));
  m.impl("record_stream", TORCH_FN(record_stream));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

}  // namespace neuron_standin
