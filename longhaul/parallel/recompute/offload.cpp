#include "longhaul/parallel/recompute/offload.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace longhaul::parallel {
namespace {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Event recorded(const c10::Stream& stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

}  // namespace

c10::Stream Offload::side(at::Device device) {
  if (!side_) {
    side_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }
  return *side_;
}

Offload::KeptPtr Offload::keep(const at::Tensor& x) {
  auto kept = std::make_shared<Kept>();
  kept->there = x.detach();
  kept->host = at::empty(x.sizes(), x.options().device(at::kCPU).pinned_memory(true));
  const c10::Stream beside = side(x.device());
  recorded(current_stream(x.device())).block(beside);
  {
    const c10::StreamGuard guard(beside);
    kept->host.copy_(x, /*non_blocking=*/true);
  }
  kept->out = recorded(beside);
  order_.push_back(kept);
  return kept;
}

void Offload::left(const KeptPtr& kept) {
  if (!kept->out) return;
  kept->out->block(current_stream(kept->there.device()));
  kept->out.reset();
  kept->there = at::empty({0}, kept->there.options());
}

void Offload::begin_fetch(Kept& kept) {
  if (kept.back) return;
  const at::Device device = kept.there.device();
  kept.there = at::empty(kept.host.sizes(), kept.host.options().device(device));
  const c10::Stream beside = side(device);
  // Work that used this memory before may still be running.
  recorded(current_stream(device)).block(beside);
  {
    const c10::StreamGuard guard(beside);
    kept.there.copy_(kept.host, /*non_blocking=*/true);
  }
  kept.back = recorded(beside);
}

at::Tensor Offload::take(const KeptPtr& kept) {
  left(kept);
  begin_fetch(*kept);
  std::erase_if(
      order_, [&](const auto& other) { return other.expired() || other.lock() == kept; });
  // The tensor of a block that is still running is still on the device.
  if (const auto next = order_.empty() ? nullptr : order_.back().lock();
      next && !next->out) {
    begin_fetch(*next);
  }
  kept->back->block(current_stream(kept->there.device()));
  return std::exchange(kept->there, {});
}

}  // namespace longhaul::parallel
