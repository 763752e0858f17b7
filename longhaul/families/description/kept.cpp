#include "longhaul/families/description/kept.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace longhaul {

const char* kept_name(KeptKind kind) {
  constexpr const char* kNames[kKeptKinds] = {"inputs",       "norms", "attention",
                                              "feed_forward", "head",  "weight_gradients",
                                              "batch"};
  return kNames[static_cast<size_t>(kind)];
}

KeptBytes& KeptBytes::operator+=(const KeptBytes& other) {
  for (size_t i = 0; i < kKeptKinds; ++i) bytes_[i] += other.bytes_[i];
  return *this;
}

int64_t KeptBytes::total() const {
  return std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0});
}

bool KeptIn::holds(const ForwardForm& form) const {
  const bool again = form.recompute == ForwardForm::Recompute::Selective;
  if (!(again ? selective : plain)) return false;
  if (form.fused) return fused;
  return form.compute_bytes == 4 ? composite_32 : composite_16;
}

int64_t TokenCounts::rows(KeptRows kind) const {
  switch (kind) {
    case KeptRows::Tokens:
      return inside;
    case KeptRows::Masked:
      return static_cast<int64_t>(std::ceil(static_cast<double>(inside) * kMaskedShare));
    case KeptRows::Sequences:
      return sequences;
    case KeptRows::Routed:
      return static_cast<int64_t>(std::ceil(static_cast<double>(inside) * imbalance));
  }
  return 0;
}

int64_t KeptTensor::bytes(const ForwardForm& form, const TokenCounts& tokens,
                          const format::TpRank& rank) const {
  return (outside ? tokens.outside : tokens.rows(rows)) * each *
         format::part_of(split, width, rank).size() * (fp32 ? 4 : form.compute_bytes);
}

KeptBytes UnitForward::kept(const ForwardForm& form, const TokenCounts& tokens,
                            const format::TpRank& rank, bool whole_block) const {
  KeptBytes sum;
  if (whole_block && form.recompute == ForwardForm::Recompute::Full) {
    for (size_t i = 0; i < inputs; ++i) {
      sum[KeptKind::Input] += tensors[i].bytes(form, tokens, rank);
    }
    return sum;
  }
  for (const KeptTensor& tensor : tensors) {
    const bool here = std::ranges::any_of(
        tensor.when, [&](const KeptIn& in) { return in.holds(form); });
    if (here) sum[tensor.kind] += tensor.bytes(form, tokens, rank);
  }
  return sum;
}

KeptBytes UnitForward::kept_put_off(const ForwardForm& form, const TokenCounts& tokens,
                                    const format::TpRank& rank) const {
  KeptBytes sum;
  for (const KeptTensor& tensor : put_off) {
    if (tensor.shared && tokens.inside == tokens.outside) continue;
    sum[tensor.kind] += tensor.bytes(form, tokens, rank);
  }
  return sum;
}

int64_t logits_rows(int64_t tokens, int64_t vocabulary, int64_t elements,
                    int64_t fewest) {
  int64_t rows = std::max(elements / vocabulary, fewest);
  if (rows >= 4 * kLogitsRowsMultiple) rows -= rows % kLogitsRowsMultiple;
  return std::min(tokens, rows);
}

}  // namespace longhaul
