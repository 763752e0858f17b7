// These tests check that kernels for a GPU have the bits of the CPU's loops, for AdamW,
// LAMB and sums of squares.
#include <cuda_runtime.h>

#include <array>

#include "longhaul/cuda/kernels/elements.cuh"
#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/kernels/lamb.h"
#include "tests/cuda_host/guarded.h"
#include "tests/support/range_updates.h"

namespace longhaul::optim::cuda {
namespace {

using cuda_host::Edge;
using cuda_host::Guarded;
using cuda_host::Order;

/// Values of a dtype, as bytes.
struct Values {
  format::DType dtype = format::DType::F32;
  std::vector<float> f32;
  std::vector<uint16_t> bf16;

  Values(format::DType type, int64_t count, uint64_t seed, float size,
         bool positive = false)
      : dtype(type) {
    for (float x : kernels::testing::random_values(count, seed, size)) {
      if (positive) x = std::abs(x);
      if (type == format::DType::F32) {
        f32.push_back(x);
      } else {
        bf16.push_back(static_cast<uint16_t>(__builtin_bit_cast(uint32_t, x) >> 16));
      }
    }
  }
  void* data() {
    return dtype == format::DType::F32 ? static_cast<void*>(f32.data()) : bf16.data();
  }
};

/// The values of a dtype between pages that nobody may touch.
struct Held {
  Held(const Values& values, Edge edge)
      : dtype(values.dtype), f32(values.f32, edge), bf16(values.bf16, edge) {}
  void* data() {
    return dtype == format::DType::F32 ? static_cast<void*>(f32.data()) : bf16.data();
  }
  void expect_same(const Values& values) const {
    EXPECT_EQ(f32.values(), values.f32);
    EXPECT_EQ(bf16.values(), values.bf16);
  }
  format::DType dtype;
  Guarded<float> f32;
  Guarded<uint16_t> bf16;
};

/// How masters and weights are held.
enum class Weights { Masters, F32, BF16, Rounded, RoundedOverACarry };
constexpr Weights kWeights[] = {Weights::Masters, Weights::F32, Weights::BF16,
                                Weights::Rounded, Weights::RoundedOverACarry};

struct Form {
  format::DType grad, moments;
  Weights weights;
  bool rounded() const { return weights >= Weights::Rounded; }
};

/// The arrays of an update's range, in vectors or in guarded memory.
template <typename Memory>
struct State {
  Memory grad, master, exp_avg, exp_avg_sq, weight;

  AdamWRange range(const Form& form, int64_t count, const Rounding* rounding) {
    const bool shared = form.rounded() || form.weights == Weights::Masters;
    return {.count = count,
            .grad = grad.data(),
            .grad_dtype = form.grad,
            .master = master.data(),
            .exp_avg = exp_avg.data(),
            .exp_avg_sq = exp_avg_sq.data(),
            .moments_dtype = form.moments,
            .weight = shared ? master.data() : weight.data(),
            .weight_dtype = shared ? master.dtype : weight.dtype,
            .rounding = form.rounded() ? rounding : nullptr};
  }
};

State<Values> state_of(const Form& form, int64_t count) {
  const format::DType master = form.rounded() ? format::DType::BF16 : format::DType::F32;
  const format::DType weight =
      form.weights == Weights::BF16 ? format::DType::BF16 : format::DType::F32;
  return {Values(form.grad, count, 1, 1.0F), Values(master, count, 2, 0.1F),
          Values(form.moments, count, 3, 0.1F),
          Values(form.moments, count, 4, 0.01F, true), Values(weight, count, 5, 1.0F)};
}

void expect_same(const State<Held>& found, const State<Values>& expected) {
  found.grad.expect_same(expected.grad);
  found.master.expect_same(expected.master);
  found.exp_avg.expect_same(expected.exp_avg);
  found.exp_avg_sq.expect_same(expected.exp_avg_sq);
  found.weight.expect_same(expected.weight);
}

/// Where the gradients and all other arrays lie in their buffers: alike, so that elements
/// can be taken 16 bytes at a time, or different.
constexpr std::pair<Edge, Edge> kPlaces[] = {{Edge::Begin, Edge::Begin},
                                             {Edge::End, Edge::End},
                                             {Edge::Shifted, Edge::Shifted},
                                             {Edge::Begin, Edge::Shifted}};

constexpr AdamWStep kStep{.convention = AdamConvention::Torch,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-6,
                          .lr = 1e-2,
                          .weight_decay = 0.1,
                          .grad_scale = 0.37,
                          .update = 5};

/// Calls body(form, rounding) for all forms and roundings of a range.
template <typename Body>
void for_forms(const Body& body) {
  for (const format::DType grad : {format::DType::F32, format::DType::BF16}) {
    for (const format::DType moments : {format::DType::F32, format::DType::BF16}) {
      for (const Weights weights : kWeights) {
        SCOPED_TRACE(::testing::Message() << "gradients " << format::dtype_name(grad)
                                          << ", moments " << format::dtype_name(moments)
                                          << ", weights " << static_cast<int>(weights));
        // Rows begin anywhere, and with a carry the numbers go from below 2^33 to above.
        const bool carry = weights == Weights::RoundedOverACarry;
        const int64_t first = carry ? (int64_t{2} << 32) - 3000 : 5;
        body(Form{grad, moments, weights}, Rounding{77, {11, 333, 1000, first}});
      }
    }
  }
}

/// Expects that `act(range)` on vectors and `gpu(range, placed)` in guarded memory do the
/// same, for all forms and places. The values that both return are compared too.
template <typename Act, typename Gpu>
void expect_same_update(std::initializer_list<int64_t> counts, const Act& act,
                        const Gpu& gpu) {
  cuda_host::report_crossings();
  for_forms([&](const Form& form, const Rounding& rounding) {
    for (const int64_t count : counts) {
      SCOPED_TRACE(count);
      State<Values> expected = state_of(form, count);
      const State<Values> before = expected;
      const auto told = act(expected.range(form, count, &rounding));
      int order = 0;
      for (const auto& [grad, rest] : kPlaces) {
        SCOPED_TRACE(order);
        cuda_host::set_order(static_cast<Order>(order++ % 3));
        State<Held> found{Held(before.grad, grad), Held(before.master, rest),
                          Held(before.exp_avg, rest), Held(before.exp_avg_sq, rest),
                          Held(before.weight, rest)};
        EXPECT_EQ(gpu(found.range(form, count, &rounding)), told);
        expect_same(found, expected);
      }
    }
  });
  cuda_host::set_order(Order::Ascending);
}

constexpr std::initializer_list<int64_t> kCounts = {1, 7, 8, 33, 2047, 2048, 5003};

TEST(CudaAdamW, HasTheBitsOfTheCpus) {
  for (const auto convention : {AdamConvention::Torch, AdamConvention::Hf}) {
    AdamWStep step = kStep;
    step.convention = convention;
    expect_same_update(
        kCounts,
        [&](const AdamWRange& range) {
          adamw_update(range, step);
          return 0;
        },
        [&](const AdamWRange& range) {
          enqueue_adamw(range, adamw_scalars(step), step.update, nullptr);
          return 0;
        });
  }
}

/// The values of the sums before a call, which adds to them.
using Sums = std::array<double, 2>;
constexpr Sums kBefore = {0.5, 3.0};

/// Returns the total of partial sums in guarded memory.
template <typename Enqueue>
Sums total(int64_t count, int series, const Enqueue& enqueue) {
  const int64_t blocks = norm_blocks(count);
  const auto sums = static_cast<size_t>(series);
  Guarded<double> partial(std::vector<double>(static_cast<size_t>(blocks) * sums, NAN),
                          Edge::End);
  Guarded<double> into({kBefore.begin(), kBefore.begin() + series}, Edge::End);
  enqueue(partial.data());
  enqueue_total(partial.data(), blocks, series, into.data(), nullptr);
  Sums out = kBefore;
  std::ranges::copy(into.values(), out.begin());
  return out;
}

/// The rate that a tensor's ratio gives: in fp32 it would be another value.
constexpr double kRate = 1.0 / 3.0 + 1e-9;

TEST(CudaLamb, HasTheBitsOfTheCpus) {
  const auto decay = static_cast<float>(kStep.weight_decay);
  expect_same_update(
      {1, 33, 2048, 5003},
      [&](const AdamWRange& range) {
        const LambSums sums = lamb_moments(range, kStep);
        AdamWStep slower = kStep;
        slower.lr = kRate * kStep.lr;
        lamb_apply(range, slower);
        return Sums{kBefore[0] + sums.weight, kBefore[1] + sums.update};
      },
      [&](const AdamWRange& range) {
        const Sums sums = total(range.count, 2, [&](double* partial) {
          enqueue_lamb_moments(range, lamb_moments_scalars(kStep), decay, kStep.update,
                               partial, nullptr);
        });
        Guarded<double> rate({kRate}, Edge::End);
        enqueue_lamb_apply(range, lamb_apply_scalars(kStep), lamb_rate(kStep),
                           rate.data(), kStep.update, nullptr);
        return sums;
      });
}

TEST(CudaLamb, SumsOfManyBlocksHaveTheBitsOfTheCpus) {
  cuda_host::report_crossings();
  const Form form{format::DType::BF16, format::DType::F32, Weights::BF16};
  const int64_t count = 2 * kNormBlock + 777;
  State<Values> cpu = state_of(form, count);
  State<Values> gpu = cpu;
  const LambSums expected = lamb_moments(cpu.range(form, count, nullptr), kStep);
  const Sums found = total(count, 2, [&](double* partial) {
    enqueue_lamb_moments(gpu.range(form, count, nullptr), lamb_moments_scalars(kStep),
                         static_cast<float>(kStep.weight_decay), kStep.update, partial,
                         nullptr);
  });
  EXPECT_EQ(found, (Sums{kBefore[0] + expected.weight, kBefore[1] + expected.update}));
  EXPECT_EQ(gpu.exp_avg.f32, cpu.exp_avg.f32);
}

TEST(CudaSquares, HaveTheBitsOfTheCpus) {
  cuda_host::report_crossings();
  for (const format::DType dtype : {format::DType::F32, format::DType::BF16}) {
    for (const int64_t count :
         {int64_t{1}, int64_t{15}, int64_t{17}, int64_t{2050}, kNormBlock - 1, kNormBlock,
          kNormBlock + 1, 3 * kNormBlock + 4111}) {
      SCOPED_TRACE(::testing::Message() << format::dtype_name(dtype) << " " << count);
      Values values(dtype, count, 9, 1.0F);
      const double expected = sum_of_squares(values.data(), count, dtype);
      int order = 0;
      for (const Edge edge : cuda_host::kEdges) {
        cuda_host::set_order(static_cast<Order>(order++));
        Held held(values, edge);
        Guarded<double> partial(
            std::vector<double>(static_cast<size_t>(norm_blocks(count)), NAN), Edge::End);
        Guarded<double> into({kBefore[0]}, Edge::End);
        const SquaresRange part{held.data(), count, into.data()};
        enqueue_squares({&part, 1}, dtype, partial.data(), nullptr);
        EXPECT_EQ(into.values()[0], kBefore[0] + expected);
        held.expect_same(values);
      }
    }
  }
  cuda_host::set_order(Order::Ascending);
}

TEST(CudaSquares, OfManyPartsAreAddedToTheirPlacesInTheirOrder) {
  // There are more parts than one launch has. Some add to the same sum, some are empty,
  // and some have two blocks.
  constexpr int kParts = 250;
  Values values(format::DType::F32, kNormBlock + kParts, 9, 1.0F);
  std::vector<double> expected(100, 0.25), sums = expected;
  std::vector<SquaresRange> parts;
  int64_t blocks = 0;
  for (int i = 0; i < kParts; ++i) {
    const auto place = static_cast<size_t>(i * 7 % (i < 200 ? 100 : 3));
    const int64_t count = i % 90 == 1 ? kNormBlock + 3 : i % 5;
    parts.push_back({values.f32.data() + i, count, &sums[place]});
    expected[place] += sum_of_squares(values.f32.data() + i, count, format::DType::F32);
    blocks += norm_blocks(count);
  }
  Guarded<double> partial(std::vector<double>(static_cast<size_t>(blocks), NAN),
                          Edge::End);
  enqueue_squares(parts, format::DType::F32, partial.data(), nullptr);
  EXPECT_EQ(sums, expected);
  for (const double sum : partial.values()) EXPECT_GE(sum, 0.0);
}

TEST(CudaSquares, OfMoreBlocksThanAreFetchedAtATimeAreAddedInTheirOrder) {
  for (const int series : {1, 2}) {
    std::vector<double> partial;
    for (int i = 0; i < 1001 * series; ++i) partial.push_back(1.0 / (i + 3));
    Sums expected{};
    for (size_t i = 0; i < partial.size(); ++i) {
      expected[i % static_cast<size_t>(series)] += partial[i];
    }
    Guarded<double> from(partial, Edge::End);
    Guarded<double> into({kBefore.begin(), kBefore.begin() + series}, Edge::End);
    enqueue_total(from.data(), 1001, series, into.data(), nullptr);
    for (size_t i = 0; i < static_cast<size_t>(series); ++i) {
      EXPECT_EQ(into.values()[i], kBefore[i] + expected[i]);
    }
  }
}

TEST(CudaUpdates, TakeSixteenBytesWhereverPartsOfBuffersLieAlike) {
  alignas(16) static float wide[64];
  alignas(16) static uint16_t narrow[64];
  for (int i = 0; i < 24; ++i) {
    EXPECT_EQ(lead_of(ToNearest(), wide + i, narrow + i), i % kEach);
    EXPECT_EQ(lead_of(ToNearest(), wide + i, static_cast<NoWeight*>(nullptr)), i % 4);
    EXPECT_EQ(lead_of(ToNearest(), wide + i, narrow + i + 1), -1);
  }
  EXPECT_EQ(lead_of(ToNearest(), wide + 3, narrow + 7), 7);
  Rounding rounding{1, {0, 1000, 1000, (int64_t{1} << 32) - 1000}};
  const AdamWRange within{.count = 1000, .rounding = &rounding};
  const AdamWRange across{.count = 1001, .rounding = &rounding};
  EXPECT_EQ(lead_of(AtRandom(within, 1), narrow + 8), 0);
  EXPECT_EQ(lead_of(AtRandom(across, 1), narrow + 8), -1);
}

}  // namespace
}  // namespace longhaul::optim::cuda
