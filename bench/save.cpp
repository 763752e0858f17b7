// Measures what a save costs a rank, as JSON. bench_save.py starts it beside its peers.
//   bench_save DIR MEGABYTES [ROUNDS]
// One rank saves a state of one tensor per 16 MB, as a rank of a large run has them.

#include <fmt/format.h>

#include <cstring>
#include <thread>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/write/background_saver.h"
#include "longhaul/comm/backend.h"
#include "longhaul/system/stopwatch.h"

namespace {

using namespace longhaul;

constexpr size_t kTensorBytes = size_t{16} << 20;

/// Times the copy alone, without our bookkeeping, into memory that is there already.
double plain_copy(const std::vector<std::byte>& from, std::vector<std::byte>& to,
                  unsigned threads) {
  const system::Stopwatch watch;
  std::vector<std::thread> others;
  const size_t part = from.size() / threads;
  for (unsigned t = 1; t < threads; ++t) {
    others.emplace_back(
        [&, t] { std::memcpy(to.data() + t * part, from.data() + t * part, part); });
  }
  std::memcpy(to.data(), from.data(), part);
  for (std::thread& other : others) other.join();
  return watch.seconds();
}

/// Times the disk: the bytes are written and synced, and nothing is hashed.
double plain_write(const fs::path& path, const std::vector<std::byte>& bytes) {
  constexpr size_t kPart = size_t{1} << 20;
  const system::Stopwatch watch;
  File file = File::create(path);
  for (size_t at = 0; at < bytes.size(); at += kPart) {
    file.write(std::span(bytes).subspan(at, std::min(kPart, bytes.size() - at)));
    if (at % (32 * kPart) == 0 && at > 0)
      file.start_writeback(at - 32 * kPart, 32 * kPart);
  }
  file.sync();
  file.close();
  const double seconds = watch.seconds();
  fs::remove(path);
  return seconds;
}

checkpoint::Snapshot snapshot_of(int64_t step, const std::vector<std::byte>& bytes) {
  checkpoint::Snapshot snapshot;
  snapshot.step = step;
  for (size_t at = 0; at < bytes.size(); at += kTensorBytes) {
    const auto part =
        std::span(bytes).subspan(at, std::min(kTensorBytes, bytes.size() - at));
    snapshot.tensors.push_back(
        {checkpoint::kWeight,
         format::TensorSlice::whole(fmt::format("layers.{}.weight", at / kTensorBytes),
                                    {static_cast<int64_t>(part.size() / 4)},
                                    format::DType::F32),
         part});
  }
  return snapshot;
}

int measure(const fs::path& dir, size_t bytes, int rounds) {
  const std::vector<std::byte> state(bytes, std::byte{0x3c});
  std::vector<std::byte> copy(bytes, std::byte{1});
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  const auto world = comm::world(comm::Backend::Auto, {});
  checkpoint::SaverOptions options;
  options.dir = dir / "checkpoints";
  options.keep = 1;
  options.read_back = false;
  options.copy_threads = static_cast<int>(threads);
  checkpoint::BackgroundSaver saver(options, *world);
  saver.prepare(snapshot_of(0, state).tensors);
  for (int round = 0; round < rounds; ++round) {
    const double memory = plain_copy(state, copy, threads);
    const double disk = plain_write(dir / "raw", state);
    std::optional<checkpoint::SaveReport> before;
    saver.start(snapshot_of(round + 1, state), before);
    const auto report = saver.wait();
    report->raise();
    fmt::print("{}\n", json_text(Json{{"bytes", bytes},
                                      {"copy_s", memory},
                                      {"raw_write_s", disk},
                                      {"stall_s", report->stall},
                                      {"durable_s", report->seconds}}));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    fmt::print(stderr, "usage: bench_save DIR MEGABYTES [ROUNDS]\n");
    return 1;
  }
  const size_t megabytes = std::stoul(arguments[2]);
  return measure(arguments[1], megabytes * 1'000'000,
                 count > 3 ? std::stoi(arguments[3]) : 1);
}
