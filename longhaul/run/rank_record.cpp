#include "longhaul/run/rank_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/process.h"

namespace longhaul::run {
namespace {

constexpr std::array<char, 8> kMagic = {'L', 'H', 'R', 'E', 'C', 'O', 'R', 'D'};
constexpr uint32_t kVersion = 7;
constexpr const char* kSuffix = ".record";
/// The phases whose longest time a record keeps.
constexpr std::array kRecordedPhases = {kSavePhase, kSaveWaitPhase, kValidationPhase};

// The file's layout: little-endian, natural alignment, texts padded with zeros.
struct Operation {
  uint64_t ticket;  ///< counts from 1; 0: empty
  int64_t number;
  uint64_t bytes;
  double started;
  double ended;
  char verb[16];
  char group[24];
  char label[48];
};

struct Layout {
  char magic[8];  ///< written last of the first content
  uint32_t version;
  uint32_t size;
  int32_t rank;
  int32_t world;
  int64_t pid;
  double created;
  char host[64];
  uint64_t sequence;  ///< odd while the writer is in the middle of a change
  char place[64];
  int64_t step;
  double phase_since;
  char phase[32];
  uint64_t tickets;  ///< operations started
  double waits_since;
  double moved;
  Operation waits_for;  ///< its ticket is 0 when this rank waits for nothing
  char failure[512];
  int64_t told;  ///< 1: what failed is another rank's
  int64_t exit_code;
  int64_t steps_done;
  double step_ended;
  double step_wall[kRecordedSteps];  ///< of step i at i % kRecordedSteps
  double step_busy[kRecordedSteps];
  double longest[kRecordedPhases.size()];  ///< negative where no such phase has ended
  Operation operations[kRecordedOperations];
};
static_assert(std::is_trivially_copyable_v<Layout>);
static_assert(sizeof(Operation) == 128 && sizeof(Layout) == 5296,
              "another layout is another kVersion");

template <size_t N>
void put(char (&field)[N], std::string_view text) {
  const size_t used = std::min(text.size(), N);
  std::fill(std::copy_n(text.data(), used, field), field + N, '\0');
}

template <size_t N>
std::string get(const char (&field)[N]) {
  return {field, ::strnlen(field, N)};
}

void put(Operation& to, const OperationName& name) {
  to.number = name.number;
  to.bytes = name.bytes;
  put(to.verb, name.verb);
  put(to.group, name.group);
  put(to.label, name.label);
}

RecordedOperation get(const Operation& from) {
  return {get(from.group), get(from.verb), get(from.label), from.number,
          from.bytes,      from.started,   from.ended};
}

Operation& slot_of(Layout& layout, uint64_t ticket) {
  return layout.operations[ticket % kRecordedOperations];
}

/// Keeps the longest time of each of kRecordedPhases.
void keep_longest(Layout& layout, std::string_view phase, double seconds) {
  const auto* const found = std::ranges::find(kRecordedPhases, phase);
  if (found == kRecordedPhases.end()) return;
  double& longest = layout.longest[found - kRecordedPhases.begin()];
  longest = std::max(longest, seconds);
}

/// A change that readers either see whole or know to be under way.
class Change {
 public:
  explicit Change(Layout& layout) : sequence_(layout.sequence) {
    sequence_.fetch_add(1, std::memory_order_acquire);
  }
  ~Change() { sequence_.fetch_add(1, std::memory_order_release); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  std::atomic_ref<uint64_t> sequence_;
};

[[noreturn]] void fail(const fs::path& path, const char* call, int error) {
  throw to_error(
      fs::filesystem_error(call, path, std::error_code(error, std::generic_category())));
}

Layout first_content(int rank, int world) {
  Layout layout{};
  layout.version = kVersion;
  layout.size = sizeof(Layout);
  layout.rank = rank;
  layout.world = world;
  layout.pid = ::getpid();
  layout.created = layout.phase_since = machine_seconds();
  layout.exit_code = -1;
  std::ranges::fill(layout.longest, -1.0);
  put(layout.host, host_name());
  put(layout.phase, "start");
  std::memcpy(layout.magic, kMagic.data(), kMagic.size());
  return layout;
}

Layout& layout_of(const Mapping& map) { return *reinterpret_cast<Layout*>(map.get()); }

}  // namespace

std::string to_string(const OperationName& name) {
  return fmt::format("{} number {} ({} bytes) on '{}'{}", name.verb, name.number,
                     name.bytes, name.group,
                     name.label.empty() ? "" : fmt::format(" [{}]", name.label));
}

fs::path rank_record_path(const fs::path& dir, int rank) {
  return dir / fmt::format("rank_{:05}{}", rank, kSuffix);
}

RankRecord RankRecord::create(const fs::path& dir, int rank, int world) {
  fs::create_directories(dir);
  const fs::path path = rank_record_path(dir, rank);
  // A new file takes the place of the old one, so that a process that still reads the old
  // file is not disturbed.
  const fs::path fresh = path.string() + ".new";
  const Layout content = first_content(rank, world);
  File file = File::create(fresh);
  file.write(std::as_bytes(std::span(&content, 1)));
  file.close();
  const Descriptor opened(::open(fresh.c_str(), O_RDWR | O_CLOEXEC));
  if (!opened.is_open()) fail(fresh, "open", errno);
  Mapping map(sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, opened.get());
  if (!map && errno == ENODEV) {
    fail_input(
        "record",
        "{}: its file system cannot map a file that is written; set LONGHAUL_RECORD_DIR "
        "to a directory of the machine itself (/dev/shm, /tmp)",
        dir.string());
  }
  if (!map) fail(fresh, "mmap", errno);
  RankRecord record(std::move(map));
  fs::rename(fresh, path);
  return record;
}

void RankRecord::set_place(const Place& place) {
  const Change change(layout_of(map_));
  put(layout_of(map_).place, to_string(place));
}

void RankRecord::set(std::string_view phase, int64_t step) {
  Layout& layout = layout_of(map_);
  const double now = machine_seconds();
  const Change change(layout);
  keep_longest(layout, get(layout.phase), now - layout.phase_since);
  put(layout.phase, phase);
  layout.step = step;
  layout.phase_since = now;
  layout.told = 0;
}

void RankRecord::told() {
  const Change change(layout_of(map_));
  layout_of(map_).told = 1;
}

void RankRecord::moved() {
  const double now = machine_seconds();
  const Change change(layout_of(map_));
  layout_of(map_).moved = now;
}

void RankRecord::lasted(std::string_view phase, double seconds) {
  const Change change(layout_of(map_));
  keep_longest(layout_of(map_), phase, seconds);
}

uint64_t RankRecord::started(const OperationName& name) {
  Layout& layout = layout_of(map_);
  const double now = machine_seconds();
  const Change change(layout);
  const uint64_t ticket = ++layout.tickets;
  Operation& slot = slot_of(layout, ticket);
  put(slot, name);
  slot.ticket = ticket;
  slot.started = now;
  slot.ended = 0.0;
  return ticket;
}

void RankRecord::ended(uint64_t operation) {
  Layout& layout = layout_of(map_);
  Operation& slot = slot_of(layout, operation);
  if (slot.ticket != operation) return;  // younger ones took its place
  const double now = machine_seconds();
  const Change change(layout);
  slot.ended = now;
}

void RankRecord::waits(uint64_t operation, const OperationName& name) {
  Layout& layout = layout_of(map_);
  const double now = machine_seconds();
  const Change change(layout);
  put(layout.waits_for, name);
  const Operation& slot = slot_of(layout, operation);
  layout.waits_for.ticket = operation;
  layout.waits_for.started = slot.ticket == operation ? slot.started : 0.0;
  layout.waits_for.ended = 0.0;
  layout.waits_since = now;
}

void RankRecord::waited() {
  const Change change(layout_of(map_));
  layout_of(map_).waits_for.ticket = 0;
}

void RankRecord::step_done(double wall_seconds, double busy_seconds) {
  Layout& layout = layout_of(map_);
  const double now = machine_seconds();
  const Change change(layout);
  const int64_t slot = layout.steps_done++ % kRecordedSteps;
  layout.step_wall[slot] = wall_seconds;
  layout.step_busy[slot] = busy_seconds;
  layout.step_ended = now;
}

void RankRecord::finished(int exit_code) {
  const Change change(layout_of(map_));
  layout_of(map_).exit_code = exit_code;
}

void RankRecord::failed(std::string_view message) {
  const Change change(layout_of(map_));
  put(layout_of(map_).failure, message);
}

namespace {

/// Reads a copy of the file; `torn` tells that the writer was in the middle of a change.
/// System calls order the three reads.
Layout read_once(const File& file, bool& torn) {
  const auto sequence = [&] {
    uint64_t value = 0;
    file.read_at(offsetof(Layout, sequence),
                 std::as_writable_bytes(std::span(&value, 1)));
    return value;
  };
  Layout layout{};
  const uint64_t before = sequence();
  file.read_at(0, std::as_writable_bytes(std::span(&layout, 1)));
  torn = before != sequence() || before % 2 != 0;
  return layout;
}

void check_head(const Layout& layout, const fs::path& path) {
  if (std::memcmp(layout.magic, kMagic.data(), kMagic.size()) != 0) {
    fail_input("record", "{} is no rank record: its first 8 bytes are not 'LHRECORD'",
               path.string());
  }
  if (layout.version != kVersion || layout.size != sizeof(Layout)) {
    fail_input("record",
               "{} is a rank record of version {} and {} bytes, and this program reads "
               "version {} of {} bytes; use the program that wrote it",
               path.string(), layout.version, layout.size, kVersion, sizeof(Layout));
  }
}

double median_of(const double (&seconds)[kRecordedSteps], int64_t steps) {
  std::vector<double> kept(std::begin(seconds), std::end(seconds));
  kept.resize(static_cast<size_t>(std::clamp<int64_t>(steps, 0, kRecordedSteps)));
  if (kept.empty()) return 0.0;
  const auto middle = kept.begin() + static_cast<std::ptrdiff_t>(kept.size() / 2);
  std::ranges::nth_element(kept, middle);
  return *middle;
}

RankState to_state(const Layout& layout) {
  RankState state;
  state.rank = layout.rank;
  state.world = layout.world;
  state.pid = layout.pid;
  state.host = get(layout.host);
  state.place = parse_place(get(layout.place));
  state.created = layout.created;
  state.step = layout.step;
  state.phase = get(layout.phase);
  state.phase_since = layout.phase_since;
  state.waits = layout.waits_for.ticket != 0;
  state.waits_for = get(layout.waits_for);
  state.waits_since = layout.waits_since;
  state.moved = layout.moved;
  state.failure = get(layout.failure);
  state.told = layout.told != 0;
  state.exit_code = static_cast<int>(layout.exit_code);
  state.steps_done = layout.steps_done;
  state.step_ended = layout.step_ended;
  state.step_wall_seconds = median_of(layout.step_wall, layout.steps_done);
  for (size_t i = 0; i < kRecordedPhases.size(); ++i) {
    if (layout.longest[i] < 0.0) continue;
    state.longest_phases[std::string(kRecordedPhases[i])] = layout.longest[i];
  }
  state.step_busy_seconds = median_of(layout.step_busy, layout.steps_done);
  std::vector<Operation> operations(std::begin(layout.operations),
                                    std::end(layout.operations));
  std::erase_if(operations, [](const Operation& o) { return o.ticket == 0; });
  std::ranges::sort(operations, {}, &Operation::ticket);
  for (const Operation& o : operations) state.operations.push_back(get(o));
  return state;
}

}  // namespace

RankState read_rank_record(const fs::path& path) {
  constexpr int kTries = 200;
  const File file = File::open_read(path);
  if (file.size() != sizeof(Layout)) {
    fail_input("record", "{} has {} bytes; a rank record of this version has {}",
               path.string(), file.size(), sizeof(Layout));
  }
  bool torn = true;
  Layout layout{};
  for (int i = 0; i < kTries && torn; ++i) layout = read_once(file, torn);
  check_head(layout, path);
  RankState state = to_state(layout);
  state.torn = torn;
  return state;
}

double RankState::last_progress() const {
  double latest =
      std::max({created, phase_since, step_ended, moved, waits ? waits_since : 0.0});
  for (const RecordedOperation& o : operations) {
    latest = std::max({latest, o.started, o.ended});
  }
  return latest;
}

std::string to_string(const RankState& state, double now) {
  std::string text = fmt::format("rank {}", state.rank);
  if (state.place) text += fmt::format(" ({})", to_string(*state.place));
  text += fmt::format(" step {} phase {}: ", state.step, state.phase);
  const auto since = [&](double then) { return fmt::format("{:.0f} s", now - then); };
  if (!state.failure.empty()) {
    text += "failed: " + state.failure;
  } else if (state.waits) {
    text += fmt::format("waits in {} for {}", to_string(state.waits_for.name()),
                        since(state.waits_since));
  } else if (state.operations.empty()) {
    text += fmt::format("in no collective for {}", since(state.phase_since));
  } else {
    // A rank that is in no collective has worked by itself since it last started or ended
    // one.
    const RecordedOperation& last = state.operations.back();
    text +=
        fmt::format("in no collective for {}, last {}{}", since(state.last_progress()),
                    to_string(last.name()), last.ended > 0.0 ? "" : " (under way)");
  }
  if (state.torn) text += " (read in the middle of a change)";
  return text;
}

}  // namespace longhaul::run
