#include "longhaul/cluster/health/health_compute.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>

#include "longhaul/base/file.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/memory.h"
#include "longhaul/system/run_on_threads.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

/// Rows, columns and depth. One matrix of fp64 fills a large part of a core's own cache.
constexpr size_t kSize = 192;
constexpr uint64_t kBlockBytes = uint64_t{16} << 20;

/// Two matrices of fixed integers, and the hash that their product must have.
template <class Number>
class KnownProduct {
 public:
  /// Returns whether the product comes out right.
  bool is_right(int core, const Damage& damage) {
    std::ranges::fill(c_, Number{0});
    for (size_t i = 0; i < kSize; ++i) {
      for (size_t k = 0; k < kSize; ++k) {
        const Number factor = a_[i * kSize + k];
        for (size_t j = 0; j < kSize; ++j)
          c_[i * kSize + j] += factor * b_[k * kSize + j];
      }
    }
    const auto bytes = std::as_writable_bytes(std::span(c_));
    if (damage) damage(core, bytes);
    return hash_hex(std::span<const std::byte>(bytes)) == kHash;
  }

 private:
  // A sum of 192 products of at most 2^42 (fp64) or 2^14 (fp32) is below 2^53 or 2^24, so
  // that every order of additions and every instruction set gives the same bits.
  static constexpr bool kWide = sizeof(Number) == 8;
  static constexpr uint32_t kRange = uint32_t{2} << (kWide ? 21 : 7);
  static constexpr std::string_view kHash =
      kWide ? "21c9bdb0b8b0fba53cef6bd06472b336" : "bcbcd7b9ba914fb6722dc1a878f48c9a";

  static std::vector<Number> fixed_matrix(uint32_t salt) {
    std::vector<Number> values(kSize * kSize);
    for (uint32_t i = 0; i < values.size(); ++i) {
      uint32_t x = (i + salt) * 2654435761U;
      x ^= x >> 15;
      x *= 2246822519U;
      x ^= x >> 13;
      values[i] = static_cast<Number>(static_cast<int32_t>(x % (kRange - 1)) -
                                      static_cast<int32_t>(kRange / 2 - 1));
    }
    return values;
  }

  std::vector<Number> a_ = fixed_matrix(1);
  std::vector<Number> b_ = fixed_matrix(77777);
  std::vector<Number> c_ = std::vector<Number>(a_.size());
};

struct CoreResult {
  int core = 0;
  int64_t products = 0;
  double gflops = 0.0;
  std::string problem = {};
};

/// Binds this thread to the core and multiplies until `seconds` are over.
void work_on(CoreResult& result, double seconds, const Damage& damage) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(result.core, &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
  KnownProduct<double> wide;
  KnownProduct<float> narrow;
  const system::Stopwatch watch;
  const auto multiply = [&](auto& product, const char* format) {
    ++result.products;
    if (product.is_right(result.core, damage) || !result.problem.empty()) return;
    result.problem = fmt::format("core {} computed {} product {} wrong", result.core,
                                 format, result.products);
  };
  double passed = 0.0;
  do {
    multiply(wide, "fp64");
    multiply(narrow, "fp32");
    passed = watch.seconds();
  } while (result.problem.empty() && passed < seconds);
  result.gflops = 2e-9 * double(kSize * kSize * kSize) * double(result.products) / passed;
}

/// Returns what a word holds in a pass: its own address, the complement, a walking bit.
uint64_t pattern(int pass, uint64_t word) {
  const uint64_t address = word * sizeof(uint64_t);
  return pass == 0 ? address : pass == 1 ? ~address : uint64_t{1} << (word % 64);
}

/// Fills words with the pattern of a pass until `seconds` are over. Returns how many
/// words it has filled.
uint64_t fill(std::span<uint64_t> words, int pass, double seconds) {
  const system::Stopwatch watch;
  uint64_t done = 0;
  while (done < words.size() && (done == 0 || watch.seconds() < seconds)) {
    const uint64_t end =
        std::min<uint64_t>(words.size(), done + kBlockBytes / sizeof(uint64_t));
    for (; done < end; ++done) words[done] = pattern(pass, done);
  }
  return done;
}

}  // namespace

HealthCheck check_compute(double seconds, const Damage& damage) {
  std::vector<CoreResult> results;
  for (const int core : system::allowed_cpus()) results.push_back({.core = core});
  // Each thread binds itself to its core, so the calling thread, number 0, does not work.
  system::run_on_threads(static_cast<int>(results.size()) + 1, [&](int number) {
    if (number > 0) work_on(results[static_cast<size_t>(number) - 1], seconds, damage);
  });
  std::ranges::sort(results, {}, &CoreResult::gflops);
  int64_t products = 0;
  std::string problems;
  for (const CoreResult& result : results) {
    products += result.products;
    if (result.problem.empty()) continue;
    problems += (problems.empty() ? "" : ", ") + result.problem;
  }
  HealthCheck check;
  if (!problems.empty()) {
    check = HealthCheck::failed(problems + "; take the node out of service");
  } else {
    check.text = fmt::format(
        "{} cores, {} products right, {:.1f} GFLOP/s a core, the slowest {:.1f}",
        results.size(), products, results[results.size() / 2].gflops,
        results.front().gflops);
  }
  check.values = {{"cores", results.size()},
                  {"products", products},
                  {"median_gflops", results[results.size() / 2].gflops},
                  {"slowest_gflops", results.front().gflops}};
  return check;
}

HealthCheck check_memory(double seconds, uint64_t max_bytes, const Damage& damage) {
  const uint64_t available = system::available_memory();
  const uint64_t wanted = std::min(max_bytes, available / 10) / kBlockBytes * kBlockBytes;
  if (wanted == 0) {
    return HealthCheck::failed(fmt::format("only {} are free; end what uses the memory",
                                           human_bytes(available)));
  }
  const Mapping mapping(wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  if (!mapping) {
    return HealthCheck::failed(
        fmt::format("{} of memory could not be allocated", human_bytes(wanted)));
  }
  ::madvise(mapping.get(), wanted, MADV_HUGEPAGE);
  const std::span words(reinterpret_cast<uint64_t*>(mapping.get()),
                        wanted / sizeof(uint64_t));
  constexpr int kPasses = 3;
  uint64_t count = words.size();
  const system::Stopwatch watch;
  for (int pass = 0; pass < kPasses; ++pass) {
    // Later passes are faster, because the kernel has provided the pages in the first
    // pass.
    count = fill(words.first(count), pass, (pass == 0 ? 0.4 : 0.1) * seconds);
    if (damage) damage(pass, std::as_writable_bytes(words.first(count)));
    for (uint64_t word = 0; word < count; ++word) {
      if (words[word] == pattern(pass, word)) continue;
      return HealthCheck::failed(
          fmt::format("a word held {:#018x} where {:#018x} was written (byte {} of {}); "
                      "take the node out of service",
                      words[word], pattern(pass, word), word * sizeof(uint64_t), wanted));
    }
  }
  HealthCheck check;
  const double bytes = double(count * sizeof(uint64_t));
  check.values = {{"available_bytes", available}, {"bytes", bytes}};
  check.text = fmt::format("{} of {} free memory held three patterns ({:.1f} GB/s)",
                           human_bytes(bytes), human_bytes(available),
                           2e-9 * kPasses * bytes / watch.seconds());
  return check;
}

}  // namespace longhaul::cluster
