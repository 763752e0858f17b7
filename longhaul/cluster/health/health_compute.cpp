#include "longhaul/cluster/health/health_compute.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/system/run_on_threads.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

/// Rows, columns and depth; a matrix of fp64 fills a large part of a core's own cache.
constexpr int kSize = 192;
constexpr uint64_t kBlockBytes = uint64_t{16} << 20;

/// Matrices of integers below 2^bits in magnitude, from a fixed recipe.
template <class Number>
std::vector<Number> fixed_matrix(uint32_t salt, int bits) {
  std::vector<Number> values(static_cast<size_t>(kSize) * kSize);
  for (uint32_t i = 0; i < values.size(); ++i) {
    uint32_t x = (i + salt) * 2654435761U;
    x ^= x >> 15;
    x *= 2246822519U;
    x ^= x >> 13;
    const uint32_t range = uint32_t{2} << bits;
    values[i] = static_cast<Number>(static_cast<int32_t>(x % (range - 1)) -
                                    static_cast<int32_t>(range / 2 - 1));
  }
  return values;
}

template <class Number>
void multiply(const std::vector<Number>& a, const std::vector<Number>& b,
              std::vector<Number>& c) {
  std::ranges::fill(c, Number{0});
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t k = 0; k < kSize; ++k) {
      const Number factor = a[i * kSize + k];
      for (size_t j = 0; j < kSize; ++j) c[i * kSize + j] += factor * b[k * kSize + j];
    }
  }
}

/// The two matrices and the place for their product in one number format.
template <class Number>
struct Product {
  // 192 products of 2^42 (fp64) or 2^14 (fp32) are below 2^53 and 2^24.
  static constexpr int kBits = sizeof(Number) == 8 ? 21 : 7;
  std::vector<Number> a = fixed_matrix<Number>(1, kBits);
  std::vector<Number> b = fixed_matrix<Number>(77777, kBits);
  std::vector<Number> c = std::vector<Number>(a.size());

  std::string hash(int core, const Damage& damage) {
    multiply(a, b, c);
    const auto bytes = std::as_writable_bytes(std::span(c));
    if (damage) damage(core, bytes);
    return hash_hex(std::span<const std::byte>(bytes));
  }
};

struct CoreResult {
  int core = 0;
  bool pinned = false;
  int64_t products = 0;
  double seconds = 0.0;
  std::string problem;
  double gflops() const {
    return seconds > 0.0 ? 2e-9 * kSize * kSize * kSize * double(products) / seconds
                         : 0.0;
  }
};

void work_on(CoreResult& result, double seconds, const Damage& damage) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(result.core, &set);
  result.pinned = ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set) == 0;
  Product<double> wide;
  Product<float> narrow;
  const Stopwatch watch;
  do {
    for (const bool is_wide : {true, false}) {
      ++result.products;
      const std::string hash =
          is_wide ? wide.hash(result.core, damage) : narrow.hash(result.core, damage);
      const bool right =
          hash == (is_wide ? known_product_hash_f64() : known_product_hash_f32());
      if (right || !result.problem.empty()) continue;
      result.problem = fmt::format("core {} computed {} product {} wrong", result.core,
                                   is_wide ? "fp64" : "fp32", result.products);
    }
    result.seconds = watch.seconds();
  } while (result.problem.empty() && result.seconds < seconds);
}

uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("MemAvailable:")) continue;
    std::istringstream words(line.substr(13));
    uint64_t kilobytes = 0;
    words >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

uint64_t pattern(int pass, uint64_t word) {
  switch (pass) {
    case 0:
      return word * sizeof(uint64_t);
    case 1:
      return ~(word * sizeof(uint64_t));
    default:
      return uint64_t{1} << (word % 64);
  }
}

struct Mapping {
  explicit Mapping(uint64_t bytes)
      : size(bytes),
        data(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0)) {
    if (data != MAP_FAILED) ::madvise(data, size, MADV_HUGEPAGE);
  }
  ~Mapping() {
    if (data != MAP_FAILED) ::munmap(data, size);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  uint64_t size;
  void* data;
};

/// Fills words with a pass's pattern until `seconds` are over; returns how many.
uint64_t fill(std::span<uint64_t> words, int pass, double seconds) {
  const Stopwatch watch;
  uint64_t done = 0;
  while (done < words.size() && (done == 0 || watch.seconds() < seconds)) {
    const uint64_t end =
        std::min<uint64_t>(words.size(), done + kBlockBytes / sizeof(uint64_t));
    for (; done < end; ++done) words[done] = pattern(pass, done);
  }
  return done;
}

}  // namespace

std::string known_product_hash_f64() { return "21c9bdb0b8b0fba53cef6bd06472b336"; }
std::string known_product_hash_f32() { return "bcbcd7b9ba914fb6722dc1a878f48c9a"; }

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  return cores;
}

HealthCheck check_compute(double seconds, const Damage& damage) {
  std::vector<CoreResult> results;
  for (const int core : usable_cores()) results.emplace_back().core = core;
  // Each thread binds itself to its core: this one, number 0, does not work.
  run_on_threads(static_cast<int>(results.size()) + 1, [&](int number) {
    if (number == 0) return;
    work_on(results[static_cast<size_t>(number) - 1], seconds, damage);
  });

  HealthCheck check;
  std::vector<double> rates;
  int64_t products = 0;
  std::string problems;
  for (const CoreResult& result : results) {
    rates.push_back(result.gflops());
    products += result.products;
    if (result.problem.empty()) continue;
    problems += (problems.empty() ? "" : ", ") + result.problem;
  }
  std::ranges::sort(rates);
  const double slowest = rates.empty() ? 0.0 : rates.front();
  const double median = rates.empty() ? 0.0 : rates[rates.size() / 2];
  check.values = {{"cores", results.size()},
                  {"products", products},
                  {"median_gflops", median},
                  {"slowest_gflops", slowest}};
  check.text = fmt::format(
      "{} cores, {} products right, {:.1f} GFLOP/s a core, the "
      "slowest {:.1f}",
      results.size(), products, median, slowest);
  if (!problems.empty() || results.empty()) {
    check.result = HealthResult::Failed;
    check.text = results.empty() ? "no core may be used"
                                 : problems + "; take the node out of service";
  }
  return check;
}

HealthCheck check_memory(double seconds, uint64_t max_bytes, const Damage& damage) {
  HealthCheck check;
  const uint64_t available = available_memory();
  const uint64_t wanted = std::min(max_bytes, available / 10) / kBlockBytes * kBlockBytes;
  check.values = {{"available_bytes", available}};
  if (wanted == 0) {
    check.result = HealthResult::Failed;
    check.text = fmt::format("only {} are free; end what uses the memory",
                             human_bytes(double(available)));
    return check;
  }
  const Mapping mapping(wanted);
  if (mapping.data == MAP_FAILED) {
    check.result = HealthResult::Failed;
    check.text = fmt::format("{} could not be had", human_bytes(double(wanted)));
    return check;
  }
  const std::span words(static_cast<uint64_t*>(mapping.data), wanted / sizeof(uint64_t));
  constexpr int kPasses = 3;
  uint64_t least = words.size();
  const Stopwatch watch;
  for (int pass = 0; pass < kPasses; ++pass) {
    // Later passes touch what the first has made, so that they are the faster ones.
    const double share = (pass == 0 ? 0.4 : 0.1) * seconds;
    const uint64_t count = fill(words.first(least), pass, share);
    least = count;
    if (damage) damage(pass, std::as_writable_bytes(words.first(count)));
    for (uint64_t word = 0; word < count; ++word) {
      if (words[word] == pattern(pass, word)) continue;
      check.result = HealthResult::Failed;
      check.text = fmt::format(
          "a word held {:#018x} where {:#018x} was written (byte {} of {}); take the "
          "node "
          "out of service",
          words[word], pattern(pass, word), word * sizeof(uint64_t), wanted);
      return check;
    }
  }
  const double bytes = double(least * sizeof(uint64_t));
  check.values["bytes"] = bytes;
  check.text = fmt::format("{} of {} free held three patterns ({:.1f} GB/s)",
                           human_bytes(bytes), human_bytes(double(available)),
                           2e-9 * kPasses * bytes / watch.seconds());
  return check;
}

}  // namespace longhaul::cluster
