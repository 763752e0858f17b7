#include "longhaul/train/session/staged_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <optional>

#include "longhaul/base/failure.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/agree.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/data/open_source.h"
#include "longhaul/objects/address.h"
#include "longhaul/objects/readable.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::train {
namespace {

/// How often waiting ranks meet: far shorter than a collective's time limit.
constexpr auto kMeeting = std::chrono::seconds(2);
constexpr const char* kCopiesOfObjects = "objects";

objects::CopyPlace copy_place(const RunConfig& config, system::Logger& log) {
  objects::CopyPlace place;
  if (!config.data.cache.empty()) place.dir = config.data.cache / kCopiesOfObjects;
  place.most_bytes =
      static_cast<uint64_t>(std::llround(std::min(1e9 * config.data.cache_gb, 1e18)));
  if (!log.silent()) place.tell = [&log](const std::string& line) { log.info(line); };
  return place;
}

void stage(const fs::path& address, system::Logger& log) {
  const auto store = objects::shared_store();
  const uint64_t before = store->counts().read;
  const system::Stopwatch watch;
  const fs::path copy = objects::readable(address);
  const uint64_t bytes = store->counts().read - before;
  log.info(fmt::format("{} is read from {}: {} fetched by this rank in {:.1f} s",
                       address.string(), copy.string(),
                       human_bytes(static_cast<double>(bytes)), watch.seconds()));
}

}  // namespace

bool is_packed_in_place(const fs::path& entry) {
  if (!objects::is_address(entry)) return false;
  const auto format = data::format_of_name(entry);
  return format && *format != data::InputFormat::Text &&
         *format != data::InputFormat::Csv;
}

void stage_inputs(const RunConfig& config, comm::Communicator& world,
                  system::Logger& log) {
  std::vector<fs::path> addresses = addresses_of(config);
  std::erase_if(addresses, is_packed_in_place);
  if (addresses.empty()) return;
  objects::keep_copies(copy_place(config, log));
  // A fetch takes longer than any collective may: ranks meet while their threads fetch.
  std::future<std::optional<Failure>> result = std::async(std::launch::async, [&] {
    system::leave_signals_to_main_thread();
    return Failure::of([&] {
      for (const fs::path& address : addresses) stage(address, log);
    });
  });
  const auto busy = [&] { return result.wait_for(kMeeting) != std::future_status::ready; };
  while (world.any(busy())) {
  }
  const std::optional<Failure> failure = result.get();
  comm::on_all_ranks(world, [&] {
    if (failure) failure->raise();
  });
  // The log may go before the copies do.
  objects::keep_copies({});
}

std::vector<fs::path> local_paths(const DataPaths& entry) {
  std::vector<fs::path> paths = data::expand_paths(entry.entries);
  for (fs::path& path : paths) {
    if (!is_packed_in_place(path)) path = objects::readable(path);
  }
  return paths;
}

}  // namespace longhaul::train
