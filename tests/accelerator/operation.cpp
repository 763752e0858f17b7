#include "tests/accelerator/operation.h"

#include <fmt/format.h>

#include <memory>
#include <stdexcept>

#include "tests/accelerator/counters.h"
#include "tests/accelerator/memory.h"
#include "tests/accelerator/planted.h"

namespace longhaul::softdev {
namespace {

std::string place_of(const Stream& stream, const std::string& name) {
  std::string text =
      fmt::format("{} (operation {} of {}", name, stream.launched, stream.name());
  if (!thread_label().empty()) text += fmt::format(", \"{}\"", thread_label());
  return text + ")";
}

std::string race_text(const Block& block, const Use& use, const Access& now,
                      const UseLog::Conflict& conflict) {
  const char* does = use.writes ? "writes" : "reads";
  const char* did = conflict.earlier_wrote ? "writes" : "reads";
  const auto begin = static_cast<const std::byte*>(use.data) - block.data;
  const std::string where = fmt::format(
      "bytes {} to {} of a block of {} bytes on {}", begin,
      begin + static_cast<std::ptrdiff_t>(use.bytes), block.size,
      block.device < 0 ? "the host (pinned)" : fmt::format("device {}", block.device));
  if (conflict.earlier.life != now.life) {
    return fmt::format(
        "RACE: a buffer reused too early: {} {} what was freed while {} "
        "{} it, and nothing orders the two ({})",
        *now.place, does, *conflict.earlier.place, did, where);
  }
  return fmt::format("RACE: {} {} what {} {}, and nothing orders the two ({})",
                     *now.place, does, *conflict.earlier.place, did, where);
}

/// Notes uses by the newest operation of the stream.
void note_uses(Stream& stream, const std::string& name, std::span<const Use> uses) {
  const auto place = std::make_shared<const std::string>(place_of(stream, name));
  std::string race;
  for (const Use& use : uses) {
    const auto moved = static_cast<int64_t>(use.moved.value_or(use.bytes));
    counters().kernel_bytes += moved;
    tally(name).bytes += moved;
    Block* block = use.bytes == 0 ? nullptr : block_of(use.data);
    if (block == nullptr) continue;
    const auto begin =
        static_cast<size_t>(static_cast<const std::byte*>(use.data) - block->data);
    const Access now{stream.index, stream.launched, block->life, place};
    const auto conflict =
        block->uses.note(begin, begin + use.bytes, use.writes, now, stream.seen);
    if (conflict && race.empty()) race = race_text(*block, use, now, *conflict);
  }
  if (race.empty()) return;
  ++counters().races;
  report(race);
}

}  // namespace

void note_operation(Stream& stream, const std::string& name, std::span<const Use> uses) {
  ++requests_of_thread();
  const std::lock_guard lock(state_mutex());
  ++stream.launched;
  stream.seen.join(host_clock());
  stream.seen.set(stream.index, stream.launched);
  ++counters().launches;
  ++tally(name).launches;
  note_in_timeline(stream.name(), name);
  note_uses(stream, name, uses);
}

void note_result(Stream& stream, const std::string& name, const Use& use) {
  const std::lock_guard lock(state_mutex());
  note_uses(stream, name, {&use, 1});
}

void begin_kernel(Stream& stream, const std::string& name, std::span<const Use> uses) {
  note_operation(stream, name, uses);
  stream.queue.come_to_kernel();
  for (const Use& use : uses) {
    if (!is_device_memory(use.data) || !planted("host_read")) continue;
    static_cast<void>(*static_cast<const volatile std::byte*>(use.data));
  }
  if (planted("lost_device")) {
    throw std::runtime_error("CUDA error: uncorrectable ECC error encountered");
  }
  if (planted("extra_wait")) synchronize_device(stream.device);
}

}  // namespace longhaul::softdev
