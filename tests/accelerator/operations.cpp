#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "tests/accelerator/counters.h"
#include "tests/accelerator/fallback.h"
#include "tests/accelerator/memory.h"
#include "tests/accelerator/narrow.h"
#include "tests/accelerator/operation.h"
#include "tests/accelerator/pinned.h"

// The operations that a device must have itself. All others use the CPU's kernels
// (fallback.cpp).

namespace longhaul::softdev {
namespace {

at::Tensor empty_memory(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                        std::optional<c10::Layout>, std::optional<c10::Device> device,
                        std::optional<bool>,
                        std::optional<c10::MemoryFormat> memory_format) {
  const c10::DeviceGuard guard(
      device.value_or(c10::Device(c10::DeviceType::PrivateUse1)));
  check_width(dtype.value_or(c10::get_default_dtype_as_scalartype()), "aten::empty");
  return at::detail::empty_generic(size, c10::GetAllocator(c10::DeviceType::PrivateUse1),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   dtype.value_or(c10::get_default_dtype_as_scalartype()),
                                   memory_format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                         std::optional<c10::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(
      device.value_or(c10::Device(c10::DeviceType::PrivateUse1)));
  check_width(dtype.value_or(c10::get_default_dtype_as_scalartype()),
              "aten::empty_strided");
  return at::detail::empty_strided_generic(
      size, stride, c10::GetAllocator(c10::DeviceType::PrivateUse1),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      dtype.value_or(c10::get_default_dtype_as_scalartype()));
}

bool is_pinned_block(const at::Tensor& t) {
  const std::lock_guard lock(state_mutex());
  const Block* block = t.numel() == 0 ? nullptr : block_of(t.const_data_ptr());
  return block != nullptr && block->device < 0;
}

void wait_for_copy(Stream& stream, const std::string& what) {
  stream.queue.drain();
  host_saw(stream.seen);
  count_synchronization(what);
}

void to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Stream& stream = current_stream(from.device().index());
  const at::Tensor source = cpu_alias(from);
  const bool pinned = is_pinned_block(to);
  begin_kernel(stream, "copy to the host",
               std::vector<Use>{use_of(from, false), use_of(to, true)});
  const std::lock_guard lock(state_mutex());
  const auto bytes = to.nbytes();
  counters().device_to_host_bytes += static_cast<int64_t>(bytes);
  auto* host = static_cast<std::byte*>(to.data_ptr());
  if (pinned) use_pinned_now(host, bytes);
  if (!pinned || !non_blocking || !to.is_contiguous()) {
    wait_for_copy(stream, pinned ? "copy to the host" : "copy to pageable host memory");
    to.copy_(source);
    return;
  }
  const at::Tensor staged = source.to(to.scalar_type()).contiguous();
  const auto* begin = static_cast<const std::byte*>(staged.const_data_ptr());
  write_pinned_later(stream, host, {begin, begin + bytes});
}

void to_device(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Stream& stream = current_stream(to.device().index());
  const bool pinned = is_pinned_block(from);
  begin_kernel(stream, "copy to the device",
               std::vector<Use>{use_of(from, false), use_of(to, true)});
  const std::lock_guard lock(state_mutex());
  counters().host_to_device_bytes += static_cast<int64_t>(from.nbytes());
  const auto* host = static_cast<const std::byte*>(from.const_data_ptr());
  if (pinned) use_pinned_now(host, from.nbytes());
  cpu_alias(to).copy_(from);
  if (pinned && non_blocking && from.is_contiguous()) {
    read_pinned_later(stream, host, from.nbytes());
  } else {
    wait_for_copy(stream,
                  pinned ? "copy to the device" : "copy from pageable host memory");
  }
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  if (!to.is_cpu()) check_written(to, "aten::copy_");
  if (to.is_cpu()) {
    to_host(from, to, non_blocking);
  } else if (from.is_cpu()) {
    to_device(from, to, non_blocking);
  } else {
    Stream& stream = current_stream(to.device().index());
    begin_kernel(stream, "aten::copy_",
                 std::vector<Use>{use_of(from, false), use_of(to, true)});
    cpu_alias(to).copy_(cpu_alias(from));
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

c10::Scalar local_scalar(const at::Tensor& t) {
  Stream& stream = current_stream(t.device().index());
  begin_kernel(stream, "aten::item", std::vector<Use>{use_of(t, false)});
  wait_for_copy(stream, "item");
  counters().device_to_host_bytes += static_cast<int64_t>(t.nbytes());
  return cpu_alias(t).item();
}

const at::Tensor& resize(const at::Tensor& t, c10::IntArrayRef size,
                         std::optional<c10::MemoryFormat>) {
  int64_t count = 1;
  for (const int64_t extent : size) count *= extent;
  const auto needed = static_cast<size_t>(count + t.storage_offset()) * t.itemsize();
  if (needed > t.storage().nbytes()) {
    const c10::DeviceGuard guard(t.device());
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(t.storage(), needed);
  }
  t.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return t;
}

at::Tensor view(const at::Tensor& t, c10::IntArrayRef size) {
  return at::native::view(t, size);
}

at::Tensor reshape_alias(const at::Tensor& t, c10::IntArrayRef size,
                         c10::IntArrayRef stride) {
  return at::native::as_strided_tensorimpl(t, size, stride);
}

at::Tensor as_strided(const at::Tensor& t, c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(t, size, stride, offset);
}

at::Tensor& set_storage(at::Tensor& t, at::Storage source, int64_t offset,
                        c10::IntArrayRef size, c10::IntArrayRef stride) {
  t.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return t;
}

at::Tensor& set_whole_storage(at::Tensor& t, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / t.itemsize());
  return set_storage(t, std::move(source), 0, {count}, {1});
}

at::Tensor& set_tensor(at::Tensor& t, const at::Tensor& source) {
  return set_storage(t, source.storage(), source.storage_offset(), source.sizes(),
                     source.strides());
}

at::Tensor& set_empty(at::Tensor& t) {
  const c10::DeviceGuard guard(t.device());
  return set_storage(t,
                     c10::Storage(c10::Storage::use_byte_size_t(), 0,
                                  c10::GetAllocator(c10::DeviceType::PrivateUse1), true),
                     0, {0}, {1});
}

void record_stream(at::Tensor& t, c10::Stream stream) {
  c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)
      ->recordDataPtrOnStream(t.storage().data_ptr(), stream);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty_memory);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("resize_", resize);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("as_strided", as_strided);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_", set_empty);
  m.impl("record_stream", record_stream);
}

/// Returns the operations that ran by the fallback since the list was last read.
std::set<std::string>& fallen_back() {
  static auto* const names = new std::set<std::string>;
  return *names;
}

/// Runs an operation without a kernel on the CPU, as a real device does.
void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  fallen_back().insert(op.schema().name());
  cpu_kernel(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}

/// Returns whether an operation has a kernel that is made of others.
bool is_composite(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  return op.hasKernelForDispatchKey(Key::CompositeImplicitAutograd) ||
         op.hasKernelForDispatchKey(Key::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(Key::CompositeExplicitAutogradNonFunctional);
}

/// Gives the device a kernel of every operation that has one on a CPU, apart from those
/// that SOFTDEV_WITHOUT names, with commas between.
const auto* const kKernelsOfCpu = [] {
  const char* const without = std::getenv("SOFTDEV_WITHOUT");
  const std::string left_out = fmt::format(",{},", without == nullptr ? "" : without);
  auto* const library = new torch::Library(
      torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || !name.name.starts_with("aten::") || is_composite(*op) ||
        !op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) ||
        left_out.find("," + name.name + ",") != left_out.npos) {
      continue;
    }
    const std::string text = name.name.substr(6) +
                             (name.overload_name.empty() ? "" : ".") + name.overload_name;
    library->impl(text.c_str(), torch::CppFunction::makeFromBoxedFunction<&cpu_kernel>());
  }
  return library;
}();

#pragma GCC visibility push(default)
extern "C" void longhaul_device_fallbacks(std::vector<std::string>& names) {
  names.assign(fallen_back().begin(), fallen_back().end());
  fallen_back().clear();
}
#pragma GCC visibility pop

}  // namespace
}  // namespace longhaul::softdev
