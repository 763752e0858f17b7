#pragma once

#include <ATen/ops/cat.h>

#include <vector>

#include "longhaul/layout/context.h"

namespace longhaul::parallel {

/// Returns what `rank` holds of a tensor [R, S, ...].
inline at::Tensor take_positions(const layout::ContextLayout& layout,
                                 const at::Tensor& rows, int rank) {
  std::vector<at::Tensor> parts;
  for (const layout::ContextChunk& chunk : layout.chunks(rank)) {
    parts.push_back(rows.narrow(1, chunk.begin, chunk.length));
  }
  return at::cat(parts, 1);
}

/// Writes `local`, what `rank` holds, to its positions in `rows`.
inline void put_positions(const layout::ContextLayout& layout, const at::Tensor& local,
                          int rank, at::Tensor& rows) {
  for (const layout::ContextChunk& chunk : layout.chunks(rank)) {
    rows.narrow(1, chunk.begin, chunk.length)
        .copy_(local.narrow(1, chunk.local, chunk.length));
  }
}

}  // namespace longhaul::parallel
