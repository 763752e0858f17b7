#include "longhaul/ops/linear/side_by_side.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

namespace longhaul::ops {
namespace {

/// Returns the memory from the beginning of the first part on, as [rows, columns].
at::Tensor from_first(const at::Tensor& first, int64_t rows, int64_t columns) {
  return first.as_strided({rows, columns}, {columns, 1}, first.storage_offset());
}

/// Returns whether each part begins `step(part)` elements after the part before, in one
/// storage.
template <typename Step>
bool follow_each_other(const std::vector<at::Tensor>& parts, const Step& step) {
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const at::Tensor &x = parts[i], &next = parts[i + 1];
    if (!next.is_alias_of(x) || next.scalar_type() != x.scalar_type() ||
        next.storage_offset() != x.storage_offset() + step(x)) {
      return false;
    }
  }
  return true;
}

int64_t sum_of(const std::vector<at::Tensor>& parts, int64_t dim) {
  int64_t sum = 0;
  for (const at::Tensor& x : parts) sum += x.size(dim);
  return sum;
}

/// Returns the features of a token in a tensor of these sizes: [T, n], [T, heads, D] or
/// [B, S, heads, D].
int64_t columns_of(at::IntArrayRef sizes) {
  return sizes.size() == 2 ? sizes[1]
                           : c10::multiply_integers(sizes.slice(sizes.size() - 2));
}

/// Returns a tensor [T, n], [T, heads, D] or [B, S, heads, D] as [T, n].
at::Tensor as_rows(const at::Tensor& x) {
  return (x.dim() == 4 ? x.flatten(0, 1) : x).flatten(1);
}

}  // namespace

at::Tensor joined_rows(const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts.front();
  const bool whole = std::ranges::all_of(parts, [&](const at::Tensor& x) {
    return x.dim() == 2 && x.size(1) == first.size(1) && x.is_contiguous();
  });
  const auto elements = [](const at::Tensor& x) { return x.numel(); };
  if (!whole || !follow_each_other(parts, elements)) return {};
  return from_first(first, sum_of(parts, 0), first.size(1));
}

at::Tensor stacked(const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts.front();
  const bool equal = std::ranges::all_of(parts, [&](const at::Tensor& x) {
    return x.dim() == 2 && x.sizes() == first.sizes() && x.is_contiguous();
  });
  const int64_t distance = parts.size() == 1
                               ? first.numel()
                               : parts[1].storage_offset() - first.storage_offset();
  const auto step = [&](const at::Tensor& /*x*/) { return distance; };
  if (!equal || distance < first.numel() || !follow_each_other(parts, step)) return {};
  return first.as_strided(
      {static_cast<int64_t>(parts.size()), first.size(0), first.size(1)},
      {distance, first.size(1), 1}, first.storage_offset());
}

at::Tensor joined_columns(const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts.front();
  const int64_t columns = sum_of(parts, 1);
  const bool slices = std::ranges::all_of(parts, [&](const at::Tensor& x) {
    return x.size(0) == first.size(0) && x.stride(0) == columns && x.stride(1) == 1;
  });
  const auto width = [](const at::Tensor& x) { return x.size(1); };
  if (!slices || !follow_each_other(parts, width)) return {};
  return from_first(first, first.size(0), columns);
}

at::Tensor matrix_of_columns(const std::vector<at::Tensor>& parts) {
  if (parts.size() == 1) return parts[0].contiguous();
  const at::Tensor joined = joined_columns(parts);
  return joined.defined() ? joined : at::cat(parts, 1);
}

ColumnLayout::ColumnLayout(const std::vector<at::Tensor>& parts) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& x : parts) {
    sizes_.push_back(x.sizes().vec());
    rows.push_back(as_rows(x));
  }
  Group order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return rows[i].storage_offset(); });
  while (!order.empty()) {
    // The tensors that share one storage are a group if they are the columns of one
    // matrix. Otherwise each of these tensors is a group of its own.
    Group group, rest;
    for (const size_t i : order) {
      (rows[i].is_alias_of(rows[order[0]]) ? group : rest).push_back(i);
    }
    std::vector<at::Tensor> of_group;
    for (const size_t i : group) of_group.push_back(rows[i]);
    if (joined_columns(of_group).defined()) {
      groups_.push_back(group);
    } else {
      for (const size_t i : group) groups_.push_back({i});
    }
    order = std::move(rest);
  }
}

void ColumnLayout::fill(const Group& group, const at::TensorOptions& options,
                        std::vector<at::Tensor>& out) const {
  const auto width = [&](size_t i) { return columns_of(sizes_[i]); };
  int64_t columns = 0;
  for (const size_t i : group) columns += width(i);
  const int64_t rows = c10::multiply_integers(sizes_[group[0]]) / width(group[0]);
  const at::Tensor all = at::empty({rows, columns}, options);
  int64_t from = 0;
  for (const size_t i : group) {
    out[i] = all.narrow(1, from, width(i)).view(sizes_[i]);
    from += width(i);
  }
}

std::vector<at::Tensor> ColumnLayout::empty(const at::TensorOptions& options) const {
  std::vector<at::Tensor> out(sizes_.size());
  for (const Group& group : groups_) fill(group, options, out);
  return out;
}

std::vector<at::Tensor> ColumnLayout::reuse(
    const std::vector<at::Tensor>& gradients) const {
  std::vector<at::Tensor> out(sizes_.size());
  for (const Group& group : groups_) {
    std::vector<at::Tensor> of_group;
    for (const size_t i : group) of_group.push_back(as_rows(gradients[i]));
    // Only gradients that are slices of one matrix are reused. Any other gradient may be
    // in use elsewhere.
    if (group.size() > 1 && joined_columns(of_group).defined()) {
      for (const size_t i : group) out[i] = gradients[i];
    } else {
      fill(group, gradients.front().options(), out);
    }
  }
  return out;
}

void ColumnLayout::hand_on(size_t part, const at::Tensor& gradient,
                           std::vector<at::Tensor>& made) const {
  if (std::ranges::find(groups_, Group{part}) != groups_.end()) {
    made[part] = gradient;
  } else if (!made[part].is_same(gradient)) {
    made[part].copy_(gradient);
  }
}

}  // namespace longhaul::ops
