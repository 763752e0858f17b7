#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "longhaul/ops/kernels/cuda.h"
#include "tests/cuda_host/fibers.h"
#include "tests/support/kernel_cases.h"

#include <cuda_runtime.h>

// This header runs kernels on the host in buffers with borders that nobody may cross, in
// several orders of their threads, and compares the results with those of the CPU's
// loops.

namespace longhaul::cuda_host {

/// Where a buffer lies between two pages that cannot be touched: its end at the upper
/// page; its start at the lower page, so that it is aligned; or its start one element
/// after that.
enum class Edge { End, Begin, Shifted };
constexpr Edge kEdges[] = {Edge::End, Edge::Begin, Edge::Shifted};

/// Prints which thread of which block left the buffers, and ends the process.
inline void report_crossing(int) {
  char text[128];
  const int n = std::snprintf(text, sizeof(text),
                              "memory outside of the buffers: block %u, thread %u\n",
                              blockIdx.x, threadIdx.x);
  if (::write(STDERR_FILENO, text, static_cast<size_t>(n)) < 0) ::_exit(71);
  ::_exit(70);
}

inline void report_crossings() {
  static char stack[65536];
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = sizeof(stack);
  ::sigaltstack(&other, nullptr);
  struct sigaction action{};
  action.sa_handler = report_crossing;
  action.sa_flags = SA_ONSTACK;
  ::sigaction(SIGSEGV, &action, nullptr);
  ::sigaction(SIGBUS, &action, nullptr);
}

template <typename T>
class Guarded {
 public:
  Guarded(const std::vector<T>& values, Edge edge) : count_(values.size()) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t bytes = count_ * sizeof(T);
    inner_ = (bytes + sizeof(T) + page - 1) / page * page;
    mapped_ = inner_ + 2 * page;
    memory_ = static_cast<std::byte*>(::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(memory_, page, PROT_NONE);
    ::mprotect(memory_ + page + inner_, page, PROT_NONE);
    begin_ = memory_ + page;
    std::memset(begin_, kBorder, inner_);
    const size_t shift = edge == Edge::End     ? inner_ - bytes
                         : edge == Edge::Begin ? 0
                                               : sizeof(T);
    data_ = begin_ + shift;
    if (bytes > 0) std::memcpy(data_, values.data(), bytes);
  }
  ~Guarded() { ::munmap(memory_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return reinterpret_cast<T*>(data_); }

  /// Returns the values; fails the test if something was written beside them.
  std::vector<T> values() const {
    std::vector<T> out(count_);
    if (count_ > 0) std::memcpy(out.data(), data_, count_ * sizeof(T));
    const std::byte* end = data_ + count_ * sizeof(T);
    const auto kept = [](const std::byte* from, const std::byte* to) {
      return std::all_of(from, to, [](std::byte b) { return b == std::byte{kBorder}; });
    };
    EXPECT_TRUE(kept(begin_, data_)) << "written before the buffer";
    EXPECT_TRUE(kept(end, begin_ + inner_)) << "written after the buffer";
    return out;
  }

 private:
  static constexpr unsigned char kBorder = 0xA5;
  size_t count_, inner_ = 0, mapped_ = 0;
  std::byte *memory_ = nullptr, *begin_ = nullptr, *data_ = nullptr;
};

/// Runs a side of a comparison: kernels of the CPU, on plain vectors.
struct OnCpu {
  template <typename T>
  struct Buffer {
    std::vector<T> held;
    T* data() { return held.data(); }
    std::vector<T> values() const { return held; }
  };
  template <typename T>
  Buffer<T> buffer(const std::vector<T>& values) const {
    return {values};
  }
  template <typename Kernel>
  void run(const Kernel& kernel) const {
    kernels::run(kernel);
  }
};

/// Runs a side of a comparison: kernels for a GPU, on guarded buffers.
struct OnGpu {
  Edge edge;
  template <typename T>
  Guarded<T> buffer(const std::vector<T>& values) const {
    return Guarded<T>(values, edge);
  }
  template <typename Kernel>
  void run(const Kernel& kernel) const {
    const auto count = static_cast<size_t>(kernels::cuda::scratch_floats(kernel));
    Guarded<float> scratch(std::vector<float>(count, NAN), edge);
    kernels::cuda::run(kernel, nullptr, scratch.data());
    scratch.values();  // checks the memory beside the values
  }
};

/// What a run wrote, and how far the values may be from the CPU's: `tolerance` times the
/// size of a value, or times `formed`, the size of a value's parts where these may
/// cancel.
struct Output {
  std::vector<double> values;
  double tolerance;
  double formed;
};

template <typename T>
Output output(const std::vector<T>& values, double tolerance, double formed = 0.0) {
  std::vector<double> wide(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    wide[i] = static_cast<double>(kernels::testing::widen(values[i]));
  }
  return {wide, tolerance, formed};
}

inline void expect_close(const Output& a, const Output& b) {
  ASSERT_EQ(a.values.size(), b.values.size());
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const double d = a.values[i] - b.values[i];
    difference += d * d;
    norm += b.values[i] * b.values[i];
  }
  const double parts = b.formed * std::sqrt(static_cast<double>(b.values.size()));
  EXPECT_LE(std::sqrt(difference), b.tolerance * std::max(std::sqrt(norm), parts));
}

/// Runs body(where), which returns outputs, on the CPU and as a GPU would, with buffers
/// at all edges. The order of threads and blocks must not change a bit.
template <typename Body>
void expect_same_on_gpu(const Body& body) {
  report_crossings();
  const std::vector<Output> expected = body(OnCpu{});
  for (const Edge edge : kEdges) {
    SCOPED_TRACE(::testing::Message() << "edge " << static_cast<int>(edge));
    std::vector<Output> first;
    for (const Order order : {Order::Ascending, Order::Descending, Order::Interleaved}) {
      set_order(order);
      const std::vector<Output> found = body(OnGpu{edge});
      if (first.empty()) first = found;
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        SCOPED_TRACE(::testing::Message() << "output " << i);
        EXPECT_EQ(std::memcmp(found[i].values.data(), first[i].values.data(),
                              8 * first[i].values.size()),
                  0)
            << "depends on the order of threads";
        expect_close(found[i], expected[i]);
      }
    }
    set_order(Order::Ascending);
  }
}

}  // namespace longhaul::cuda_host
