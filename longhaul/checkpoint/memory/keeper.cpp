#include "longhaul/checkpoint/memory/keeper.h"

#include <map>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/memory/memory_directory.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::checkpoint {
namespace {

// state.json may grow to twice its size at the start, plus this many bytes.
constexpr uint64_t kStateRoom = uint64_t{64} << 10;

/// Returns the ranks of each machine; machines are in the order of their first ranks.
std::vector<std::vector<int>> ranks_by_machine(const std::vector<std::string>& machines) {
  std::vector<std::vector<int>> ranks;
  std::map<std::string, size_t> place;
  for (size_t r = 0; r < machines.size(); ++r) {
    const auto [found, added] = place.emplace(machines[r], ranks.size());
    if (added) ranks.emplace_back();
    ranks[found->second].push_back(static_cast<int>(r));
  }
  return ranks;
}

comm::Transfer transfer(comm::Transfer::Kind kind, int peer, std::span<std::byte> bytes) {
  return {
      kind, peer, {bytes.data(), static_cast<int64_t>(bytes.size()), format::DType::U8}};
}

}  // namespace

std::vector<int> choose_holders(const std::vector<std::string>& machines) {
  const std::vector<std::vector<int>> ranks = ranks_by_machine(machines);
  if (ranks.size() < 2) return {};
  std::vector<int> holders(machines.size());
  for (size_t m = 0; m < ranks.size(); ++m) {
    const std::vector<int>& next = ranks[(m + 1) % ranks.size()];
    for (size_t i = 0; i < ranks[m].size(); ++i) {
      holders[static_cast<size_t>(ranks[m][i])] = next[i % next.size()];
    }
  }
  return holders;
}

struct MemoryKeeper::Source {
  int rank = 0;
  PartShape shape;
  std::string text;
};

MemoryKeeper::~MemoryKeeper() = default;

MemoryKeeper::MemoryKeeper(KeeperOptions options, const std::vector<StateTensor>& tensors,
                           uint64_t state_bytes, comm::Communicator& world)
    : options_(std::move(options)),
      plan_(plan_part(tensors, options_.layout)),
      group_(world.split(0, world.rank(), "memory")),
      machines_(group_->gather_strings(options_.machine)) {
  shape_ = {plan_.text.size(), 2 * state_bytes + kStateRoom, plan_.data_bytes};
  exchange_shapes();
  comm::on_all_ranks(*group_, [&] {
    make_memory_directory(options_.dir);
    hold_.emplace(options_.dir);
  });
  comm::on_all_ranks(*group_, [&] { check_room(); });
  make_slot(0);
  if (!options_.replaces) make_slot(1);
}

/// Agrees with the other ranks on who holds the copy of whose state, and on the sizes of
/// the states. Collective.
void MemoryKeeper::exchange_shapes() {
  const auto ranks = static_cast<size_t>(group_->size());
  const auto mine = static_cast<size_t>(group_->rank());
  std::vector<PartShape> shapes(ranks);
  static_assert(sizeof(PartShape) == 3 * sizeof(int64_t));
  group_
      ->all_gather({&shape_, 3, format::DType::I64},
                   {shapes.data(), static_cast<int64_t>(3 * ranks), format::DType::I64})
      ->wait();
  const std::vector<int> holders = choose_holders(machines_);
  use_.machines = static_cast<int>(ranks_by_machine(machines_).size());
  std::vector<comm::Transfer> texts;
  const auto bytes_of = [](std::string& text) {
    return std::as_writable_bytes(std::span(text));
  };
  for (size_t r = 0; r < ranks; ++r) {
    if (machines_[r] == machines_[mine]) use_.own_bytes += shapes[r].file_bytes();
    if (holders.empty()) continue;
    const auto holder = static_cast<size_t>(holders[r]);
    if (machines_[holder] == machines_[mine]) use_.other_bytes += shapes[r].file_bytes();
    if (holder != mine) continue;
    sources_.push_back(
        {static_cast<int>(r), shapes[r], std::string(shapes[r].text_bytes, '\0')});
  }
  for (Source& source : sources_) {
    texts.push_back(
        transfer(comm::Transfer::Kind::Recv, source.rank, bytes_of(source.text)));
  }
  if (!holders.empty()) {
    holder_ = holders[mine];
    texts.push_back(transfer(comm::Transfer::Kind::Send, holder_, bytes_of(plan_.text)));
  }
  group_->send_recv(std::move(texts))->wait();
}

void MemoryKeeper::check_room() const {
  // Files of other attempts count as free memory, because they are deleted before the
  // second slot is made.
  uint64_t left = 0;
  for (const std::string& name : list_part_names(options_.dir)) {
    std::error_code gone;
    const uintmax_t size = fs::file_size(options_.dir / name, gone);
    if (!gone) left += size;
  }
  const uint64_t free = free_memory_for(options_.dir) + left;
  const uint64_t wanted = 2 * (use_.own_bytes + use_.other_bytes);
  if (wanted <= free) return;
  fail_config("memory",
              "resilience.peer_memory_every: {} on this machine would hold {} (two slots "
              "of {} of its ranks and {} of its neighbours), but {} are free. Use more "
              "machines, make {} larger, or set the option to 0",
              options_.dir.string(), human_bytes(wanted), human_bytes(use_.own_bytes),
              human_bytes(use_.other_bytes), human_bytes(free),
              options_.dir.parent_path().string());
}

/// Makes the files of a slot, which holds a kept step. When that fails on any rank, no
/// file is left. Collective.
void MemoryKeeper::make_slot(size_t number) {
  Slot slot;
  std::vector<fs::path> made;
  const auto make = [&](int owner, const PartShape& shape, const std::string& text) {
    const PartName name{options_.attempt, static_cast<int>(number), owner};
    const fs::path path = options_.dir / name.text();
    PartWriter part = PartWriter::create(path, shape, text);
    made.push_back(path);
    return part;
  };
  try {
    comm::on_all_ranks(*group_, [&] {
      slot.own = make(group_->rank(), shape_, plan_.text);
      for (const Source& source : sources_) {
        slot.copies.push_back(make(source.rank, source.shape, source.text));
      }
    });
  } catch (...) {
    for (const fs::path& path : made) try_remove(path);
    throw;
  }
  slots_[number] = std::move(slot);
}

MemoryKeeper::Slot& MemoryKeeper::next_slot() {
  const size_t number = kept_ % slots_.size();
  if (!slots_[number]) {
    // All ranks have kept a step of this attempt. So the files of earlier attempts are
    // not needed.
    remove_parts(options_.dir,
                 [&](const PartName& name) { return name.attempt >= options_.attempt; });
    group_->barrier_wait();
    make_slot(number);
  }
  return *slots_[number];
}

KeepReport MemoryKeeper::keep(int64_t step, const std::string& state,
                              const std::vector<StateTensor>& tensors) {
  const comm::Label label(group_->ledger(), "peer memory");
  const system::Stopwatch watch;
  KeepReport report;
  settle();
  group_->barrier_wait();  // behind this barrier the step before is whole on all ranks
  report.waited = watch.seconds();
  const std::string agreed = group_->broadcast_string(state, 0);
  Slot& slot = next_slot();
  slot.own.open();
  for (PartWriter& copy : slot.copies) copy.open();
  report.whole = slot.own.write(tensors, plan_, agreed, options_.threads);
  if (report.whole) {
    slot.own.seal({options_.run, options_.attempt, step, group_->rank(), group_->size()});
  }
  hold_->touch();
  start_messages(slot);
  ++kept_;
  report.seconds = watch.seconds();
  return report;
}

void MemoryKeeper::start_messages(const Slot& slot) {
  std::vector<comm::Transfer> transfers;
  const auto add = [&](comm::Transfer::Kind kind, int peer, const PartWriter& part) {
    for (const std::span<std::byte> bytes :
         {part.head(), part.data(), part.seal_bytes()}) {
      transfers.push_back(transfer(kind, peer, bytes));
    }
  };
  for (size_t i = 0; i < sources_.size(); ++i) {
    add(comm::Transfer::Kind::Recv, sources_[i].rank, slot.copies[i]);
  }
  if (holder_ >= 0) add(comm::Transfer::Kind::Send, holder_, slot.own);
  if (!transfers.empty()) copy_ = group_->send_recv(std::move(transfers));
}

void MemoryKeeper::settle() {
  if (copy_) copy_->wait();
  copy_.reset();
}

void MemoryKeeper::remove() {
  settle();
  group_->barrier_wait();
  for (std::optional<Slot>& slot : slots_) slot.reset();
  remove_parts(options_.dir, [](const PartName&) { return false; });
}

}  // namespace longhaul::checkpoint
