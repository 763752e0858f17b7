#include "longhaul/train/save/state_capture.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>

#include <functional>
#include <optional>

#include "longhaul/device/device.h"
#include "longhaul/session/capture.h"

namespace longhaul::train {

struct StateCapture::Buffers {
  std::vector<at::Tensor> hosts;
  std::optional<c10::Event> copied;
};

namespace {

/// Returns the state tensors of one bucket by kind; a frozen bucket has masters only, and
/// the base of an adapter nothing.
std::vector<std::pair<const char*, at::Tensor>> tensors_of(
    const optim::BucketState& state) {
  if (!state.master.defined()) return {};  // the bucket is a base
  std::vector<std::pair<const char*, at::Tensor>> all = {
      {checkpoint::kWeight, state.master}};
  if (!state.exp_avg.defined()) return all;  // frozen
  all.emplace_back(checkpoint::kExpAvg, state.exp_avg);
  all.emplace_back(checkpoint::kExpAvgSq, state.exp_avg_sq);
  return all;
}

/// Returns host memory for `x`: buffer number `next`, which is made where it does not
/// exist.
at::Tensor& host_for(const at::Tensor& x, std::vector<at::Tensor>& hosts, size_t next) {
  if (next == hosts.size()) {
    hosts.push_back(
        at::empty(x.sizes(), x.options().device(at::kCPU).pinned_memory(true)));
  }
  return hosts[next];
}

}  // namespace

uint64_t saved_bytes(const ModelState& state) {
  uint64_t bytes = 0;
  const auto& buckets = state.flat.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    for (const auto& [kind, all] : tensors_of(state.optimizer.states()[i])) {
      bytes += static_cast<uint64_t>(buckets[i].saved.size()) * all.element_size();
    }
  }
  return bytes;
}

std::shared_ptr<StateCapture::Buffers> StateCapture::free_buffers() {
  for (const auto& set : sets_) {
    if (set.use_count() == 1) return set;
  }
  return sets_.emplace_back(std::make_shared<Buffers>());
}

checkpoint::Snapshot StateCapture::capture(const ModelState& state) {
  checkpoint::Snapshot captured;
  std::shared_ptr<Buffers> set;
  size_t used = 0;
  const auto& buckets = state.flat.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    const layout::FlatRange saved = buckets[i].saved;
    const auto pieces = tensor::pieces_in(buckets[i], saved);
    auto tensors = tensors_of(state.optimizer.states()[i]);
    if (pieces.empty() || tensors.empty()) continue;
    for (auto& [kind, all] : tensors) {
      all = all.narrow(0, saved.begin - buckets[i].owned.begin, saved.size());
      if (all.is_cpu()) continue;
      if (!set) set = free_buffers();
      at::Tensor& host = host_for(all, set->hosts, used++);
      host.copy_(all, /*non_blocking=*/true);
      all = host;
    }
    for (const tensor::FlatPiece& piece : pieces) {
      for (const auto& [kind, all] : tensors) {
        session::append_piece(
            kind, piece,
            all.narrow(0, piece.in_bucket - saved.begin, piece.in_member.size()),
            captured.tensors);
      }
    }
  }
  if (!set) return captured;
  set->copied = device::mark(state.flat.device());
  captured.ready = [set](const std::function<void()>& look) {
    device::wait(*set->copied, look);
  };
  captured.owner = set;
  return captured;
}

}  // namespace longhaul::train
