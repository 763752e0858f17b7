#include "longhaul/train/save/state_capture.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <functional>
#include <optional>

#include "longhaul/device/device.h"
#include "longhaul/session/capture.h"
#include "longhaul/train/save/pinned_blocks.h"

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

/// What this rank saves of one bucket.
struct SavedPart {
  layout::FlatRange range;
  std::vector<tensor::FlatPiece> pieces;
  std::vector<std::pair<const char*, at::Tensor>> tensors;  ///< by kind, the range alone
};

std::vector<SavedPart> saved_parts(const ModelState& state) {
  std::vector<SavedPart> parts;
  const auto& buckets = state.flat.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    const layout::FlatRange range = buckets[i].saved;
    SavedPart part{range, tensor::pieces_in(buckets[i], range),
                   tensors_of(state.optimizer.states()[i])};
    if (part.pieces.empty() || part.tensors.empty()) continue;
    for (auto& [kind, all] : part.tensors) {
      all = all.narrow(0, range.begin - buckets[i].owned.begin, range.size());
    }
    parts.push_back(std::move(part));
  }
  return parts;
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

checkpoint::Snapshot StateCapture::shared(const ModelState& state) {
  if (!shared_) shared_ = capture(state);
  return *shared_;
}

void StateCapture::before_change() {
  shared_.reset();
  if (under_way_ == nullptr) return;
  device::order(*std::exchange(under_way_, nullptr)->copied);
}

checkpoint::Snapshot StateCapture::capture(const ModelState& state) {
  checkpoint::Snapshot captured;
  const at::Device device = state.flat.device();
  std::vector<SavedPart> parts = saved_parts(state);
  if (!device.is_cpu() && !parts.empty()) {
    std::vector<at::Tensor> all;
    for (const SavedPart& part : parts) {
      for (const auto& [kind, tensor] : part.tensors) all.push_back(tensor);
    }
    const std::shared_ptr<Buffers> set = free_buffers();
    if (set->hosts.empty()) set->hosts = pinned_for(all);
    if (!beside_) beside_ = device::side_stream(device);
    device::mark(device).block(*beside_);
    const c10::StreamGuard guard(*beside_);
    for (size_t i = 0; i < all.size(); ++i) {
      set->hosts[i].copy_(all[i], /*non_blocking=*/true);
    }
    set->copied = device::mark(device);
    auto host = set->hosts.begin();
    for (SavedPart& part : parts) {
      for (auto& [kind, tensor] : part.tensors) tensor = *host++;
    }
    under_way_ = set.get();
    captured.ready = [set](const std::function<void()>& look) {
      device::wait(*set->copied, look);
    };
    captured.owner = set;
  }
  for (const SavedPart& part : parts) {
    for (const tensor::FlatPiece& piece : part.pieces) {
      for (const auto& [kind, tensor] : part.tensors) {
        session::append_piece(
            kind, piece,
            tensor.narrow(0, piece.in_bucket - part.range.begin, piece.in_member.size()),
            captured.tensors);
      }
    }
  }
  return captured;
}

}  // namespace longhaul::train
