#include "longhaul/tensor/init.h"

#include <algorithm>
#include <array>

#include "longhaul/base/error.h"
#include "longhaul/base/random.h"

namespace longhaul::tensor {
namespace {

/// Returns random numbers for the global elements 4 * block to 4 * block + 3: standard
/// normal ones, or for Init::Kind::Uniform uniform ones in [-1, 1).
std::array<float, 4> numbers(Init::Kind kind, uint64_t key, int64_t block) {
  const auto bits = philox(key, static_cast<uint64_t>(block), 0);
  if (kind == Init::Kind::Uniform) {
    std::array<float, 4> uniform{};
    std::ranges::transform(bits, uniform.begin(), [](uint32_t word) {
      return 2.0F * uniform_from_bits(word) - 1.0F;
    });
    return uniform;
  }
  const auto a = normal_from_bits(bits[0], bits[1]);
  const auto b = normal_from_bits(bits[2], bits[3]);
  return {a[0], a[1], b[0], b[1]};
}

/// Returns the global linear index of the slice's element `local`.
int64_t global_index(const format::TensorSlice& slice, int64_t local) {
  int64_t index = 0;
  int64_t stride = 1;
  for (size_t d = slice.extent.size(); d-- > 0;) {
    index += (slice.offset[d] + local % slice.extent[d]) * stride;
    local /= slice.extent[d];
    stride *= slice.global_shape[d];
  }
  return index;
}

/// Fills elements with consecutive global indices.
void fill_run(const Init& init, uint64_t key, int64_t global, int64_t count, float* out) {
  const auto scale = static_cast<float>(init.stddev);
  while (count > 0) {
    const auto four = numbers(init.kind, key, global / 4);
    const int64_t first = global % 4;
    const int64_t n = std::min<int64_t>(4 - first, count);
    for (int64_t i = 0; i < n; ++i) out[i] = scale * four[static_cast<size_t>(first + i)];
    out += n;
    global += n;
    count -= n;
  }
}

}  // namespace

void initial_values(const format::TensorSlice& slice, const Init& init, uint64_t seed,
                    int64_t begin, int64_t end, float* out) {
  LH_ASSERT(init.kind != Init::Kind::RowLengths,
            "{}: its first values follow from another parameter", slice.name);
  if (init.kind != Init::Kind::Normal && init.kind != Init::Kind::Uniform) {
    std::fill(out, out + (end - begin), init.kind == Init::Kind::Ones ? 1.0F : 0.0F);
    return;
  }
  const uint64_t key = random_key(seed, slice.name);
  // A row of the slice is one range of the whole tensor, and so is an uncut slice.
  const int64_t run = slice.is_whole() ? slice.num_elements() : slice.extent.back();
  const int64_t piece = std::min<int64_t>(run, 1 << 16);
#pragma omp parallel for schedule(static)
  for (int64_t at = begin / piece; at < (end + piece - 1) / piece; ++at) {
    // A piece may begin and end inside of rows if rows are no multiple of a piece.
    int64_t local = std::max(begin, at * piece);
    const int64_t stop = std::min(end, (at + 1) * piece);
    while (local < stop) {
      const int64_t n = std::min(stop - local, run - local % run);
      fill_run(init, key, global_index(slice, local), n, out + (local - begin));
      local += n;
    }
  }
}

void zero_row(const format::TensorSlice& slice, int64_t row, int64_t begin, int64_t end,
              float* out) {
  const int64_t local = row - slice.offset[0];
  if (local < 0 || local >= slice.extent[0]) return;
  const int64_t width = slice.num_elements() / slice.extent[0];
  const int64_t first = std::max(begin, local * width);
  const int64_t last = std::min(end, (local + 1) * width);
  if (first < last) std::fill(out + (first - begin), out + (last - begin), 0.0F);
}

}  // namespace longhaul::tensor
