#include "longhaul/train/save/pinned_blocks.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "longhaul/checkpoint/state_tensor.h"

namespace longhaul::train {
namespace {

/// Returns how much of a block is used if it takes every item that still fits, in order.
uint64_t filled(uint64_t block, const std::vector<size_t>& order,
                const std::vector<uint64_t>& bytes) {
  uint64_t used = 0;
  for (const size_t item : order) {
    if (used + bytes[item] <= block) used += bytes[item];
  }
  return used;
}

/// Returns the power of two of which the items, the largest first, leave the smallest
/// share unused.
uint64_t best_block(const std::vector<size_t>& order,
                    const std::vector<uint64_t>& bytes) {
  uint64_t all = 0;
  for (const size_t item : order) all += bytes[item];
  uint64_t best = 0;
  double best_share = 0.0;
  for (uint64_t block = std::bit_ceil(all); block >= bytes[order.front()]; block /= 2) {
    const auto used = static_cast<double>(filled(block, order, bytes));
    const double share = used / static_cast<double>(block);
    if (share <= best_share) continue;
    best = block;
    best_share = share;
  }
  return best;
}

}  // namespace

Packing pack(const std::vector<uint64_t>& items) {
  Packing packing;
  packing.places.resize(items.size());
  std::vector<uint64_t> bytes;
  for (const uint64_t item : items) {
    bytes.push_back(std::max<uint64_t>(checkpoint::padded(item), 64));
  }
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return bytes[i]; });
  while (!order.empty()) {
    const uint64_t block = best_block(order, bytes);
    uint64_t used = 0;
    std::vector<size_t> left;
    for (const size_t item : order) {
      if (used + bytes[item] > block) {
        left.push_back(item);
        continue;
      }
      packing.places[item] = {packing.blocks.size(), used};
      used += bytes[item];
    }
    packing.blocks.push_back(block);
    order = std::move(left);
  }
  return packing;
}

std::vector<at::Tensor> pinned_for(const std::vector<at::Tensor>& tensors) {
  std::vector<uint64_t> items;
  for (const at::Tensor& t : tensors) items.push_back(t.nbytes());
  const Packing packing = pack(items);
  std::vector<at::Tensor> blocks;
  for (const uint64_t bytes : packing.blocks) {
    blocks.push_back(at::empty(
        {static_cast<int64_t>(bytes)},
        tensors.front().options().dtype(at::kByte).device(at::kCPU).pinned_memory(true)));
  }
  std::vector<at::Tensor> hosts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [block, offset] = packing.places[i];
    hosts.push_back(blocks[block]
                        .narrow(0, static_cast<int64_t>(offset),
                                static_cast<int64_t>(tensors[i].nbytes()))
                        .view(tensors[i].scalar_type())
                        .view(tensors[i].sizes()));
  }
  return hosts;
}

}  // namespace longhaul::train
