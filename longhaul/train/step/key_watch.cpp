#include "longhaul/train/step/key_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/text.h"
#include "longhaul/comm/agree.h"

namespace longhaul::train {
namespace {

/// One look tells so many late keys of each rank.
constexpr size_t kMostLines = 8;

std::string told_in_all(const std::vector<device::CompiledKey>& keys) {
  double seconds = 0.0;
  int64_t bytes = 0;
  for (const device::CompiledKey& key : keys) {
    seconds += key.seconds;
    bytes += key.bytes;
  }
  return fmt::format("{}, {:.1f} s, {}", counted(std::ssize(keys), "key"), seconds,
                     human_bytes(bytes));
}

}  // namespace

std::string line_of_late_key(const device::CompiledKey& key,
                             const std::vector<device::CompiledKey>& earlier) {
  for (auto other = earlier.rbegin(); other != earlier.rend(); ++other) {
    if (other->operation() != key.operation()) continue;
    return fmt::format("{}; compiled before: {}", key.name, other->name);
  }
  return key.name;
}

void KeyWatch::look(int64_t done, comm::Communicator& world, system::Logger& log) {
  if (!device::lists_compiled_keys()) return;
  std::vector<device::CompiledKey> fresh = device::compiled_keys();
  if (done < kFirstSteps) {
    known_.insert(known_.end(), fresh.begin(), fresh.end());
    return;
  }
  if (!told_) {
    told_ = true;
    known_.insert(known_.end(), fresh.begin(), fresh.end());
    log.info("compiled by rank 0 in the first {} steps: {}", kFirstSteps,
             told_in_all(known_));
    return;
  }
  if (comm::first_rank(world, !fresh.empty()) < 0) return;
  std::string lines;
  for (size_t i = 0; i < fresh.size(); ++i) {
    if (i < kMostLines) lines += line_of_late_key(fresh[i], known_) + "\n";
    known_.push_back(fresh[i]);
  }
  if (fresh.size() > kMostLines) {
    lines += fmt::format("and {} more\n", fresh.size() - kMostLines);
  }
  for (const std::string& texts : comm::distinct_texts(world, lines)) {
    for (const std::string_view line : split(texts, '\n')) {
      if (line.empty()) continue;
      log.warning("compiled after the first {} steps of this start: {}", kFirstSteps,
                  line);
    }
  }
}

}  // namespace longhaul::train
