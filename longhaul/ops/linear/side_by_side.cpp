#include "longhaul/ops/linear/side_by_side.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

namespace longhaul::ops {
namespace {

/// [rows, columns] from where the first part begins.
at::Tensor from_first(const at::Tensor& first, int64_t rows, int64_t columns) {
  return first.as_strided({rows, columns}, {columns, 1}, first.storage_offset());
}

/// Each begins `step(part)` elements after the one before, in one storage.
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

std::vector<at::Tensor> as_rows(const std::vector<at::Tensor>& heads) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& x : heads) rows.push_back(x.flatten(1));
  return rows;
}

ColumnLayout::ColumnLayout(const std::vector<at::Tensor>& parts) {
  for (const at::Tensor& x : parts) {
    rows_.push_back(x.size(0));
    widths_.push_back(x.size(1));
  }
  Group order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {},
                           [&](size_t i) { return parts[i].storage_offset(); });
  while (!order.empty()) {
    // All that are in one memory, or else each by itself.
    Group group, rest;
    for (const size_t i : order) {
      (parts[i].is_alias_of(parts[order[0]]) ? group : rest).push_back(i);
    }
    std::vector<at::Tensor> of_group;
    for (const size_t i : group) of_group.push_back(parts[i]);
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
  int64_t columns = 0;
  for (const size_t i : group) columns += widths_[i];
  const at::Tensor all = at::empty({rows_[group[0]], columns}, options);
  int64_t from = 0;
  for (const size_t i : group) {
    out[i] = all.narrow(1, from, widths_[i]);
    from += widths_[i];
  }
}

std::vector<at::Tensor> ColumnLayout::empty(const at::TensorOptions& options) const {
  std::vector<at::Tensor> out(widths_.size());
  for (const Group& group : groups_) fill(group, options, out);
  return out;
}

bool ColumnLayout::is_alone(size_t part) const {
  return std::ranges::find(groups_, Group{part}) != groups_.end();
}

std::vector<at::Tensor> ColumnLayout::reuse(
    const std::vector<at::Tensor>& gradients) const {
  std::vector<at::Tensor> out(widths_.size());
  for (const Group& group : groups_) {
    std::vector<at::Tensor> of_group;
    for (const size_t i : group) of_group.push_back(gradients[i]);
    // One that lies alone may be anybody's.
    if (group.size() > 1 && joined_columns(of_group).defined()) {
      for (const size_t i : group) out[i] = gradients[i];
    } else {
      fill(group, gradients.front().options(), out);
    }
  }
  return out;
}

}  // namespace longhaul::ops
