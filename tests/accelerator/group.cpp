#include "tests/accelerator/group.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/comm/reduce.h"
#include "tests/accelerator/circle.h"
#include "tests/accelerator/counters.h"
#include "tests/accelerator/streams.h"

namespace longhaul::softdev {

struct alignas(64) Segment::Head {
  std::atomic<uint32_t> bell = 0;
  std::atomic<int32_t> failed = 0;  ///< 1: the text is being written; 2: it is complete
  char failure[2048];
  std::atomic<int32_t> still = 0;  ///< 1: a rank stands still by a planted fault
};

namespace {

[[noreturn]] void fail_group(const std::string& text) {
  throw Error(ErrorKind::Temporary, "softdev", text);
}

double now_seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool is_alive(int pid) {
  if (::kill(pid, 0) != 0) return false;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_ends = text.rfind(')');
  return name_ends == std::string::npos || text.compare(name_ends, 3, ") Z") != 0;
}

}  // namespace

size_t Segment::size_of(int ranks) {
  const auto n = static_cast<size_t>(ranks);
  return sizeof(Head) + n * (sizeof(Member) + kSlot) + n * n * sizeof(Mailbox);
}

Segment::Segment(int file, int ranks)
    : at_(static_cast<std::byte*>(map_shared_file(file, size_of(ranks)))),
      ranks_(ranks) {}

Segment::Head& Segment::head() const { return *reinterpret_cast<Head*>(at_); }

Member& Segment::member(int rank) const {
  return reinterpret_cast<Member*>(at_ + sizeof(Head))[rank];
}

Mailbox& Segment::mailbox(int from, int to) const {
  std::byte* first =
      at_ + sizeof(Head) + static_cast<size_t>(ranks_) * (sizeof(Member) + kSlot);
  return reinterpret_cast<Mailbox*>(first)[from * ranks_ + to];
}

std::byte* Segment::slot(int rank) const {
  return at_ + sizeof(Head) + static_cast<size_t>(ranks_) * sizeof(Member) +
         static_cast<size_t>(rank) * kSlot;
}

void Segment::ring() const {
  ++head().bell;
  ::syscall(SYS_futex, &head().bell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

uint32_t Segment::bell() const { return head().bell.load(); }

void Segment::sleep(uint32_t bell) const {
  const timespec limit{0, 20'000'000};
  ::syscall(SYS_futex, &head().bell, FUTEX_WAIT, bell, &limit, nullptr, 0);
}

void Segment::fail(std::string_view text) const {
  int32_t expected = 0;
  if (head().failed.compare_exchange_strong(expected, 1)) {
    const size_t length = std::min(text.size(), sizeof(Head::failure) - 1);
    std::memcpy(head().failure, text.data(), length);
    head().failure[length] = '\0';
    head().failed = 2;
  }
  ring();
}

std::string Segment::failure() const {
  return head().failed.load() == 2 ? head().failure : "";
}

void Segment::stand_still() const { head().still = 1; }

bool Segment::stands_still() const { return head().still != 0; }

void Patience::check_processes() const {
  for (int r = 0; r < segment_.ranks(); ++r) {
    const int pid = segment_.member(r).pid.load();
    if (pid != 0 && !is_alive(pid)) {
      segment_.fail(fmt::format("rank {} (process {}) is gone", r, pid));
    }
  }
}

void Patience::check() {
  const std::string failure = segment_.failure();
  if (!failure.empty()) fail_group(failure);
  if (segment_.stands_still()) stands_still() = true;
  if (stands_still()) segment_.stand_still();
  const double now = now_seconds();
  if (start_ < 0) start_ = now;
  // The group looks rarely, since a rank of a busy machine may just be late.
  if (now - std::max(start_ + 0.9, looked_) < 0.6) return;
  looked_ = now;
  check_processes();
  if (working_queue() != nullptr) {
    // The same circle twice means that nothing has moved in between.
    const std::string circle =
        find_circle(own_board_place(), static_cast<int>(working_queue()->index));
    if (!circle.empty() && circle == circle_) {
      report("deadlock: " + circle, /*may_throw=*/false);
      segment_.fail("deadlock: " + circle);
    }
    circle_ = circle;
  }
  const double limit = static_cast<double>(setting("SOFTDEV_LIMIT", 300));
  if (now - start_ > limit) {
    segment_.fail(fmt::format("the other ranks did not come within {} s", limit));
  }
}

std::string Group::make_id() {
  std::random_device random;
  const uint64_t id = (uint64_t{random()} << 32) | random();
  return fmt::format("softdev {} {} {}", ::getpid(), make_shared_file("softdev-group", 0),
                     id);
}

namespace {

/// Returns the file of a group's id: opened, or already open in the rank that made it.
int join_file(const std::string& text, int ranks, uint64_t& id) {
  int pid = 0;
  int file = -1;
  unsigned long long number = 0;
  if (std::sscanf(text.c_str(), "softdev %d %d %llu", &pid, &file, &number) != 3) {
    fail_group("no id of a group: '" + text + "'");
  }
  id = number;
  const int mine = open_shared_file(pid, file);
  if (mine < 0 || ::ftruncate(mine, static_cast<off_t>(Segment::size_of(ranks))) != 0) {
    fail_group(
        fmt::format("the memory of process {} cannot be reached: all ranks have "
                    "to be on this machine",
                    pid));
  }
  return mine;
}

}  // namespace

Group::Group(const std::string& id, int ranks, int rank)
    : rank_(rank), file_(join_file(id, ranks, id_)), segment_(file_, ranks) {
  Board& board = own_board();
  const size_t place = board.group_count++;
  if (place >= Board::kGroups) fail_group("too many groups");
  board.groups[place] = {id_, file_, ranks};
  Member& mine = segment_.member(rank);
  mine.board_file = own_board_place().fd;
  mine.thread = board_thread();
  mine.pid = ::getpid();
  segment_.ring();
}

void Group::wait_until(const std::function<bool()>& ready) const {
  Patience patience(segment_);
  while (true) {
    const uint32_t bell = segment_.bell();
    if (ready()) return;
    patience.check();
    segment_.sleep(bell);
  }
}

void Group::meet() {
  const uint64_t phase = ++segment_.member(rank_).phase;
  segment_.ring();
  wait_until([&] {
    for (int r = 0; r < ranks(); ++r) {
      if (segment_.member(r).phase.load() < phase) return false;
    }
    return true;
  });
}

void Group::begin(const Headline& headline, const std::string& text) {
  Member& mine = segment_.member(rank_);
  mine.headline = headline;
  mine.entered = headline.number;
  meet();
  for (int r = 0; r < ranks(); ++r) {
    const Headline& theirs = segment_.member(r).headline;
    if (theirs == headline) continue;
    segment_.fail(
        fmt::format("rank {} is at '{}', and rank {} is not: its number {} has "
                    "kind {}, {} bytes",
                    rank_, text, r, theirs.number, theirs.kind, theirs.bytes));
  }
  meet();
}

std::vector<const std::byte*> Group::slots() const {
  std::vector<const std::byte*> all;
  for (int r = 0; r < ranks(); ++r) all.push_back(segment_.slot(r));
  return all;
}

void Group::all_reduce(const std::byte* in, std::byte* out, size_t count,
                       format::DType dtype, comm::ReduceOp op) {
  const size_t each = format::dtype_size(dtype);
  const size_t most = Segment::kSlot / each;
  for (size_t done = 0; done < count; done += most) {
    const size_t n = std::min(most, count - done);
    std::memcpy(segment_.slot(rank_), in + done * each, n * each);
    meet();
    comm::reduce_parts(slots(), out + done * each, static_cast<int64_t>(n), dtype, op);
    meet();
  }
}

void Group::all_gather(const std::byte* in, std::byte* out, size_t bytes) {
  for (size_t done = 0; done < bytes; done += Segment::kSlot) {
    const size_t n = std::min(Segment::kSlot, bytes - done);
    std::memcpy(segment_.slot(rank_), in + done, n);
    meet();
    for (int r = 0; r < ranks(); ++r) {
      std::byte* to = out + static_cast<size_t>(r) * bytes + done;
      if (to != in + done) std::memcpy(to, segment_.slot(r), n);
    }
    meet();
  }
}

void Group::reduce_scatter(const std::byte* in, std::byte* out, size_t count,
                           format::DType dtype, comm::ReduceOp op) {
  const size_t each = format::dtype_size(dtype);
  const size_t most = Segment::kSlot / each;
  for (int to = 0; to < ranks(); ++to) {
    const std::byte* part = in + static_cast<size_t>(to) * count * each;
    for (size_t done = 0; done < count; done += most) {
      const size_t n = std::min(most, count - done);
      std::memcpy(segment_.slot(rank_), part + done * each, n * each);
      meet();
      if (to == rank_) {
        comm::reduce_parts(slots(), out + done * each, static_cast<int64_t>(n), dtype,
                           op);
      }
      meet();
    }
  }
}

void Group::broadcast(std::byte* buffer, size_t bytes, int root) {
  for (size_t done = 0; done < bytes; done += Segment::kSlot) {
    const size_t n = std::min(Segment::kSlot, bytes - done);
    if (rank_ == root) std::memcpy(segment_.slot(root), buffer + done, n);
    meet();
    if (rank_ != root) std::memcpy(buffer + done, segment_.slot(root), n);
    meet();
  }
}

namespace {

/// Moves one piece where the mailbox is ready. Returns true if a piece was moved.
bool move_piece(GroupTransfer& t) {
  const Segment& segment = t.group->segment();
  const int me = t.group->rank();
  Mailbox& box = t.sends ? segment.mailbox(me, t.peer) : segment.mailbox(t.peer, me);
  const bool full = box.written.load() > box.read.load();
  const size_t n = std::min(Mailbox::kPiece, t.bytes - t.moved);
  if (t.sends) {
    if (full) return false;
    if (t.moved == t.bytes) {  // the last piece was taken out
      t.done = true;
      return true;
    }
    std::memcpy(box.data, t.data + t.moved, n);
    box.message_bytes = t.bytes;
    t.moved += n;
    ++box.written;
  } else {
    if (!full) return false;
    if (box.message_bytes != t.bytes) {
      segment.fail(fmt::format("rank {} sends {} bytes to rank {}, which receives {}",
                               t.peer, box.message_bytes, me, t.bytes));
      return false;
    }
    std::memcpy(t.data + t.moved, box.data, n);
    t.moved += n;
    t.done = t.moved == t.bytes;
    ++box.read;
  }
  segment.ring();
  return true;
}

/// Returns true where an earlier transfer of the same two ranks is not done: messages of
/// two ranks go one after the other.
bool waits_for_earlier(const std::vector<GroupTransfer>& all, size_t index) {
  const GroupTransfer& t = all[index];
  return std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(index),
                     [&](const GroupTransfer& e) {
                       return !e.done && e.group == t.group && e.sends == t.sends &&
                              e.peer == t.peer;
                     });
}

}  // namespace

void run_transfers(std::vector<GroupTransfer>& transfers) {
  const Group& first = *transfers.front().group;
  Patience patience(first.segment());
  while (true) {
    const uint32_t bell = first.segment().bell();
    bool moved = false;
    bool all_done = true;
    for (size_t i = 0; i < transfers.size(); ++i) {
      GroupTransfer& t = transfers[i];
      if (t.done || waits_for_earlier(transfers, i)) continue;
      moved = move_piece(t) || moved;
      all_done = all_done && t.done;
    }
    if (all_done && std::ranges::all_of(transfers, &GroupTransfer::done)) return;
    if (moved) {
      patience.start_again();
      continue;
    }
    patience.check();
    const bool one_group = std::ranges::all_of(
        transfers, [&](const GroupTransfer& t) { return t.group == &first; });
    if (one_group) {
      first.segment().sleep(bell);
    } else {
      for (const GroupTransfer& t : transfers) Patience(t.group->segment()).check();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
}

}  // namespace longhaul::softdev
