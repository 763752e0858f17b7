// Reads a data source as training does and measures it:
//   bench_loader PATH SEQ_LEN GLOBAL_SIZE SECONDS [unverified]
// Prints one JSON object. It has tokens per second with and without the thread that reads
// ahead, and the milliseconds of opening the source. It has the milliseconds to the
// first batch of step 1 and of step 1,000,001 of a run that goes on from there. It has
// the rates of the first pass, which compares each block of a token store with its hash,
// and of the second. With "unverified" no block is compared. bench_loader.py makes the
// data and calls it.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/order/loader.h"
#include "longhaul/system/stopwatch.h"

namespace {

using namespace longhaul;
using Source = std::shared_ptr<const data::TokenSource>;

constexpr int64_t kFarStep = 1'000'000;

data::Loader make_loader(const Source& source, int64_t global_size, int64_t consumed,
                         bool prefetch) {
  data::LoaderOptions options;
  options.seed = 1;
  options.global_size = global_size;
  options.micro_size = global_size;
  options.prefetch = prefetch;
  data::Cursor start;
  if (consumed > 0) {
    data::Phase phase;
    phase.seq_len = source->seq_len();
    phase.seed = options.seed;
    phase.sources = {{source->fingerprint(), 0.6, source->num_sequences(), "a"},
                     {source->fingerprint(), 0.4, source->num_sequences(), "b"}};
    phase.consumed = consumed;
    start.phases.push_back(phase);
  }
  return data::Loader({{source, 0.6, "a", {}}, {source, 0.4, "b", {}}}, options,
                      std::move(start));
}

/// Returns the milliseconds from nothing to the first batch.
double start_ms(const Source& source, int64_t global_size, int64_t consumed) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const system::Stopwatch watch;
    data::Loader loader = make_loader(source, global_size, consumed, false);
    (void)loader.next();
    best = std::min(best, watch.seconds() * 1e3);
  }
  return best;
}

/// Returns the tokens per second of a consumer that looks at nothing.
double rate(const Source& source, int64_t global_size, double seconds, bool prefetch) {
  data::Loader loader = make_loader(source, global_size, 0, prefetch);
  for (int step = 0; step < 3; ++step) (void)loader.next();
  const system::Stopwatch watch;
  int64_t steps = 0;
  while (watch.seconds() < seconds) {
    (void)loader.next();
    ++steps;
  }
  return static_cast<double>(steps * global_size * source->seq_len()) / watch.seconds();
}

/// Returns the tokens per second of one pass, in order, on this thread.
double pass_rate(const data::TokenSource& source) {
  data::TokenBatch batch;
  source.shape(batch, 1);
  const system::Stopwatch watch;
  for (int64_t i = 0; i < source.num_sequences(); ++i) source.read(i, batch, 0);
  return static_cast<double>(source.num_sequences() * source.seq_len()) / watch.seconds();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 5 && argc != 6) {
      throw InputError(
          "bench", "usage: bench_loader PATH SEQ_LEN GLOBAL_SIZE SECONDS [unverified]");
    }
    const int64_t seq_len = std::atoll(argv[2]);
    const int64_t global_size = std::atoll(argv[3]);
    const double seconds = std::atof(argv[4]);
    const system::Stopwatch watch;
    const Source source = data::open_source(argv[1], seq_len, false, argc == 5);
    const double open_ms = watch.seconds() * 1e3;
    // This pass also warms the page cache for the next one.
    const double first_pass = pass_rate(*source);
    const double second_pass = pass_rate(*source);
    const Json result = {
        {"source", source->describe()},
        {"open_ms", open_ms},
        {"first_pass_tokens_per_s", first_pass},
        {"second_pass_tokens_per_s", second_pass},
        {"first_ms", start_ms(source, global_size, 0)},
        {"far_ms", start_ms(source, global_size, kFarStep * global_size)},
        {"tokens_per_s", rate(source, global_size, seconds, true)},
        {"tokens_per_s_without_prefetch", rate(source, global_size, seconds, false)}};
    fmt::print("{}\n", json_text(result));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "longhaul: error: {}\n", error.what());
    return error.exit_code();
  }
}
