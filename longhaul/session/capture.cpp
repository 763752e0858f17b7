#include "longhaul/session/capture.h"

#include <ATen/ops/clone.h>

#include <algorithm>

#include "longhaul/families/parameter_names.h"

namespace longhaul::session {

void append_piece(const std::string& kind, const tensor::FlatPiece& piece,
                  const at::Tensor& part, std::vector<checkpoint::StateTensor>& out) {
  format::TensorSlice slice = piece.member->parameter->slice();
  slice.dtype = tensor::from_scalar_type(part.scalar_type());
  checkpoint::append_flat_range(kind, slice, piece.in_member.begin, piece.in_member.end,
                                tensor::bytes_of(part), out);
}

Capture::Capture(CaptureSettings settings, ActivationPlace place, int rank,
                 const ModelDescription& model)
    : settings_(std::move(settings)),
      place_(std::move(place)),
      writes_(settings_.ranks.empty() || std::ranges::count(settings_.ranks, rank) > 0) {
  if (settings_.steps.empty()) return;
  for (const ParameterDescription& p : model.parameters()) {
    names_[p.name] = names_of(model, p);
  }
}

bool Capture::due(int64_t step) const {
  return std::ranges::count(settings_.steps, step) > 0;
}

void Capture::set_active(bool active) {
  active_ = active;
  storage_.clear();
  tensors_.clear();
}

bool Capture::wanted(const std::string& kind, const std::string& name) const {
  if (!active_ || !writes_) return false;
  if (settings_.tensors.empty()) return true;
  const auto found = names_.find(name);
  const std::vector<std::string> names =
      found == names_.end() ? std::vector<std::string>{name} : found->second;
  return std::ranges::any_of(settings_.tensors, [&](const std::string& pattern) {
    return std::ranges::any_of(names, [&](const std::string& one) {
      return matches_parameter(pattern, kind + "." + one);
    });
  });
}

void Capture::activation(const std::string& kind, const std::string& name,
                         int64_t micro_batch, const at::Tensor& tensor) {
  if (place_.copy || !wanted(kind, name)) return;
  storage_.push_back(at::clone(tensor.detach().cpu(), at::MemoryFormat::Contiguous));
  const at::Tensor& kept = storage_.back();
  const std::span<const std::byte> bytes = tensor::bytes_of(kept);
  const int64_t features = kept.size(1);
  const size_t row_bytes = bytes.size() / static_cast<size_t>(kept.size(0));
  int64_t local_len = 0;
  for (const auto& chunk : place_.chunks) local_len += chunk.length;
  // This rank has tokens [first, end) of the micro batch.
  const int64_t first = place_.token_part * kept.size(0);
  const int64_t end = first + kept.size(0);
  const int64_t rows = kept.size(0) * place_.token_parts / local_len;
  const int64_t sequence =
      (micro_batch * place_.dp + place_.dp_index) * place_.micro_size;
  for (int64_t row = 0; row < rows; ++row) {
    for (const layout::ContextChunk& chunk : place_.chunks) {
      const int64_t start = row * local_len + chunk.local;
      const int64_t from = std::max(start, first);
      const int64_t to = std::min(start + chunk.length, end);
      if (from >= to) continue;
      format::TensorSlice slice;
      slice.name = name;
      slice.dtype = tensor::from_scalar_type(kept.scalar_type());
      slice.global_shape = {place_.global_size, place_.seq_len, features};
      slice.offset = {sequence + row, chunk.begin + from - start, 0};
      slice.extent = {1, to - from, features};
      tensors_.push_back({kind, std::move(slice),
                          bytes.subspan(static_cast<size_t>(from - first) * row_bytes,
                                        static_cast<size_t>(to - from) * row_bytes)});
    }
  }
}

void Capture::gradients(const tensor::FlatBuffers& flat) {
  for (const tensor::Bucket& bucket : flat.buckets()) {
    if (bucket.frozen) continue;
    for (const tensor::FlatPiece& piece : tensor::pieces_in(bucket, bucket.saved)) {
      if (!wanted("gradient", piece.member->parameter->name())) continue;
      const at::Tensor part = bucket.owned_grads.narrow(
          0, piece.in_bucket - bucket.owned.begin, piece.in_member.size());
      storage_.push_back(at::clone(part.cpu(), at::MemoryFormat::Contiguous));
      append_piece("gradient", piece, storage_.back(), tensors_);
    }
  }
}

}  // namespace longhaul::session
