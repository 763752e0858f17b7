#include "longhaul/checkpoint/read/node_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <list>
#include <memory>
#include <tuple>
#include <utility>

#include "longhaul/base/text.h"
#include "longhaul/checkpoint/read/node_plan.h"
#include "longhaul/checkpoint/read/read_ahead.h"
#include "longhaul/comm/agree.h"

namespace longhaul::checkpoint {
namespace {

using comm::Transfer;

constexpr size_t kSlots = 6;  // chunks that are read ahead: the chunks of three rounds

/// A request whose stored elements are not aligned: its bytes are read as stored and
/// converted afterwards.
struct Unaligned {
  ReadRequest request;
  format::DType stored;
  std::vector<std::byte> bytes;
};

/// What a rank wants, sorted by file and offset.
struct Wishes {
  std::vector<WantedRuns> runs;
  std::list<Unaligned> unaligned;
};

void add_request(const StoredTensors& stored, const ReadRequest& request,
                 Wishes& wishes) {
  if (append_wanted(stored, request, wishes.runs)) return;
  const format::DType dtype =
      stored.parts_of(request.kind, request.slice).front().slice.dtype;
  Unaligned& later = wishes.unaligned.emplace_back(Unaligned{request, dtype, {}});
  later.bytes.resize(static_cast<size_t>(request.end - request.begin) *
                     format::dtype_size(dtype));
  ReadRequest raw = request;
  raw.dtype = dtype;
  raw.out = later.bytes;
  append_wanted(stored, raw, wishes.runs);
}

Wishes make_wishes(const StoredTensors& stored,
                   const std::vector<ReadRequest>& requests) {
  Wishes wishes;
  for (const ReadRequest& request : requests) {
    if (request.begin < request.end) add_request(stored, request, wishes);
  }
  std::stable_sort(wishes.runs.begin(), wishes.runs.end(),
                   [](const WantedRuns& a, const WantedRuns& b) {
                     return std::tuple(a.source.file, a.source.start) <
                            std::tuple(b.source.file, b.source.start);
                   });
  return wishes;
}

std::vector<ByteRuns> to_runs(const std::string& text) {
  std::vector<ByteRuns> runs(text.size() / sizeof(ByteRuns));
  // A rank may want nothing, and memcpy takes no null pointer even for 0 bytes.
  if (!runs.empty()) std::memcpy(runs.data(), text.data(), text.size());
  return runs;
}

/// Returns the byte runs that each rank wants, by rank. Collective.
std::vector<std::vector<ByteRuns>> exchange(const Wishes& wishes,
                                            comm::Communicator& node) {
  static_assert(std::is_trivially_copyable_v<ByteRuns>);
  std::string mine(wishes.runs.size() * sizeof(ByteRuns), '\0');
  for (size_t i = 0; i < wishes.runs.size(); ++i) {
    std::memcpy(mine.data() + i * sizeof(ByteRuns), &wishes.runs[i].source,
                sizeof(ByteRuns));
  }
  std::vector<std::vector<ByteRuns>> all;
  for (const std::string& text : node.gather_strings(mine)) all.push_back(to_runs(text));
  return all;
}

/// Memory that every round uses again.
class Room {
 public:
  /// Returns memory with any content.
  std::byte* take(size_t bytes) {
    if (bytes > size_) {
      data_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      size_ = bytes;
    }
    return data_.get();
  }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t size_ = 0;
};

/// Finds out whether parts that are added in their order lie side by side in memory.
class SideBySide {
 public:
  void add(std::byte* at, uint64_t length) {
    if (first_ == nullptr) first_ = next_ = at;
    good_ = good_ && at == next_;
    next_ = at + length;
  }
  /// Returns the first byte of all parts; null where they do not lie side by side.
  std::byte* first() const { return good_ ? first_ : nullptr; }

 private:
  std::byte* first_ = nullptr;
  std::byte* next_ = nullptr;
  bool good_ = true;
};

/// What one rank gets of a chunk.
struct Message {
  uint32_t chunk = 0;
  int peer = 0;
  uint64_t bytes = 0;
  std::byte* data = nullptr;  ///< null until the message has a place in a buffer
};

class NodeReader {
 public:
  NodeReader(const StoredTensors& stored, const Wishes& wishes,
             const std::vector<std::vector<ByteRuns>>& runs_of, const NodePlan& plan,
             comm::Communicator& node)
      : wishes_(wishes),
        runs_of_(runs_of),
        plan_(plan),
        node_(node),
        mine_(plan.read_by(node.rank())),
        ahead_(stored, chunks_of(plan, mine_), kSlots) {}

  /// Reads and passes everything. Throws on all ranks if any rank could not read.
  void run() {
    bool good = true;
    for (size_t i = 0; good && i < plan_.rounds().size(); ++i) {
      good = run_round(plan_.rounds()[i]);
    }
    comm::on_all_ranks(node_, [&] {
      if (problem_) std::rethrow_exception(problem_);
      if (good) take_own();
    });
  }
  const ReadReport& report() const { return report_; }

 private:
  /// A whole chunk that this rank has read.
  struct Held {
    uint32_t chunk = 0;
    std::span<const std::byte> bytes;
  };

  static std::vector<Chunk> chunks_of(const NodePlan& plan,
                                      const std::vector<uint32_t>& numbers) {
    std::vector<Chunk> chunks;
    for (const uint32_t c : numbers) chunks.push_back(plan.chunks()[c]);
    return chunks;
  }
  Held take() {
    const Held held{mine_[taken_], ahead_.wait(taken_)};
    ++taken_;
    report_.read += held.bytes.size();
    return held;
  }
  /// Copies what this rank wants of a chunk to where it belongs.
  void scatter_chunk(const Held& held) const {
    for (const uint32_t i : plan_.runs_in(node_.rank(), held.chunk)) {
      scatter(wishes_.runs[i], plan_.chunks()[held.chunk].begin, held.bytes);
    }
  }
  /// Copies the chunks that only this rank wants to where they belong.
  void take_own() {
    while (taken_ < mine_.size()) {
      scatter_chunk(take());
      ahead_.release_before(taken_);
    }
  }

  bool run_round(const std::vector<uint32_t>& round);
  std::vector<Message> messages_out(const std::vector<Held>& held);
  std::vector<Message> messages_in(const std::vector<uint32_t>& round);
  void pack(const Message& message, std::span<const std::byte> bytes) const;
  void place_received(const Message& message) const;
  std::byte* only_piece(int rank, const Held& held) const;
  std::byte* only_target(uint32_t chunk) const;
  bool same_wishes(int a, int b, uint32_t chunk) const;

  const Wishes& wishes_;
  const std::vector<std::vector<ByteRuns>>& runs_of_;
  const NodePlan& plan_;
  comm::Communicator& node_;
  std::vector<uint32_t> mine_;  ///< chunks that this rank reads, in their order
  ReadAhead ahead_;
  size_t taken_ = 0;  ///< number of chunks in mine_ that were taken
  std::exception_ptr problem_;
  ReadReport report_;
  Room packed_;
  Room received_;
};

bool NodeReader::run_round(const std::vector<uint32_t>& round) {
  std::vector<Held> held;
  try {
    for (const uint32_t chunk : round) {
      if (plan_.chunks()[chunk].reader == node_.rank()) held.push_back(take());
    }
  } catch (...) {
    problem_ = std::current_exception();
  }
  // If any rank could not read, all ranks stop: the others would wait for its messages.
  if (node_.any(problem_ != nullptr)) return false;
  const std::vector<Message> in = messages_in(round);
  const std::vector<Message> out = messages_out(held);
  std::vector<Transfer> transfers;
  for (const auto& [messages, kind] :
       {std::pair(&in, Transfer::Kind::Recv), std::pair(&out, Transfer::Kind::Send)}) {
    for (const Message& m : *messages) {
      transfers.push_back(
          {kind, m.peer, {m.data, static_cast<int64_t>(m.bytes), format::DType::U8}});
    }
  }
  const comm::WorkPtr work = node_.send_recv(std::move(transfers));
  for (const Held& h : held) {
    scatter_chunk(h);
    work->test();
  }
  work->wait();
  for (const Message& m : in) place_received(m);
  for (const Message& m : out) report_.passed += m.bytes;
  ahead_.release_before(taken_);
  return true;
}

/// Returns the first byte that a rank wants of a chunk, if all that it wants lie side by
/// side, else null.
std::byte* NodeReader::only_piece(int rank, const Held& held) const {
  const uint64_t begin = plan_.chunks()[held.chunk].begin;
  // The bytes are only read through this pointer.
  auto* const bytes = const_cast<std::byte*>(held.bytes.data());
  SideBySide all;
  for (const uint32_t i : plan_.runs_in(rank, held.chunk)) {
    runs_of_[static_cast<size_t>(rank)][i].for_each_part(
        begin, begin + held.bytes.size(),
        [&](uint64_t, uint64_t, uint64_t offset, uint64_t length) {
          all.add(bytes + (offset - begin), length);
        });
  }
  return all.first();
}

/// Returns the first byte of this rank's outputs for a chunk, if they lie side by side
/// and nothing is converted, else null.
std::byte* NodeReader::only_target(uint32_t chunk) const {
  const Chunk& c = plan_.chunks()[chunk];
  SideBySide all;
  for (const uint32_t i : plan_.runs_in(node_.rank(), chunk)) {
    const WantedRuns& wanted = wishes_.runs[i];
    if (wanted.stored != wanted.dtype) return nullptr;
    wanted.source.for_each_part(
        c.begin, c.begin + c.bytes,
        [&](uint64_t run, uint64_t inside, uint64_t, uint64_t length) {
          all.add(wanted.out + run * wanted.out_stride + inside, length);
        });
  }
  return all.first();
}

bool NodeReader::same_wishes(int a, int b, uint32_t chunk) const {
  return std::ranges::equal(
      plan_.runs_in(a, chunk), plan_.runs_in(b, chunk), [&](uint32_t i, uint32_t j) {
        return runs_of_[static_cast<size_t>(a)][i] == runs_of_[static_cast<size_t>(b)][j];
      });
}

// Returns the messages with what other ranks want of the chunks. The bytes are sent from
// where they lie, or packed in the order of the byte runs that the receiving rank wants.
// Ranks that want the same are sent the same bytes.
std::vector<Message> NodeReader::messages_out(const std::vector<Held>& held) {
  std::vector<Message> messages;
  std::vector<std::pair<size_t, size_t>>
      to_pack;  // index of the message, place in the buffer
  std::vector<std::pair<size_t, size_t>>
      same_as;  // index of the message, index of an earlier one
  size_t packed_bytes = 0;
  std::vector<std::span<const std::byte>> sources;
  for (const Held& h : held) {
    const size_t first = messages.size();
    for (int rank = 0; rank < node_.size(); ++rank) {
      const uint64_t bytes = plan_.wanted(rank, h.chunk);
      if (rank == node_.rank() || bytes == 0) continue;
      const size_t number = messages.size();
      messages.push_back({h.chunk, rank, bytes, only_piece(rank, h)});
      sources.push_back(h.bytes);
      if (messages.back().data != nullptr) continue;
      size_t twin = first;
      while (twin < number && !same_wishes(messages[twin].peer, rank, h.chunk)) ++twin;
      if (twin < number) {
        same_as.emplace_back(number, twin);
      } else {
        to_pack.emplace_back(number, packed_bytes);
        packed_bytes += bytes;
      }
    }
  }
  std::byte* const room = packed_.take(packed_bytes);
  for (const auto& [number, place] : to_pack) {
    messages[number].data = room + place;
    pack(messages[number], sources[number]);
  }
  for (const auto& [number, twin] : same_as) messages[number].data = messages[twin].data;
  return messages;
}

void NodeReader::pack(const Message& message, std::span<const std::byte> bytes) const {
  const uint64_t begin = plan_.chunks()[message.chunk].begin;
  std::byte* to = message.data;
  for (const uint32_t i : plan_.runs_in(message.peer, message.chunk)) {
    runs_of_[static_cast<size_t>(message.peer)][i].for_each_part(
        begin, begin + bytes.size(),
        [&](uint64_t, uint64_t, uint64_t offset, uint64_t length) {
          std::memcpy(to, bytes.data() + (offset - begin), length);
          to += length;
        });
  }
}

// Returns the messages that this rank receives. If the outputs of a message lie side by
// side, it is received straight into them, else into a buffer.
std::vector<Message> NodeReader::messages_in(const std::vector<uint32_t>& round) {
  std::vector<Message> messages;
  size_t buffered = 0;
  for (const uint32_t chunk : round) {
    const int reader = plan_.chunks()[chunk].reader;
    const uint64_t bytes = plan_.wanted(node_.rank(), chunk);
    if (reader == node_.rank() || bytes == 0) continue;
    messages.push_back({chunk, reader, bytes, only_target(chunk)});
    if (messages.back().data == nullptr) buffered += bytes;
  }
  std::byte* room = received_.take(buffered);
  for (Message& m : messages) {
    if (m.data != nullptr) continue;
    m.data = room;
    room += m.bytes;
  }
  return messages;
}

void NodeReader::place_received(const Message& message) const {
  const Chunk& c = plan_.chunks()[message.chunk];
  const std::byte* from = message.data;
  if (from == only_target(message.chunk)) return;  // the bytes are in place already
  for (const uint32_t i : plan_.runs_in(node_.rank(), message.chunk)) {
    const WantedRuns& wanted = wishes_.runs[i];
    const uint64_t bytes = wanted.source.bytes_in(c.begin, c.begin + c.bytes);
    scatter_packed(wanted, c.begin, c.begin + c.bytes, {from, bytes});
    from += bytes;
  }
}

}  // namespace

ReadReport& ReadReport::operator+=(const ReadReport& next) {
  read += next.read;
  wanted += next.wanted;
  passed += next.passed;
  seconds += next.seconds;
  return *this;
}

std::string ReadReport::describe() const {
  const auto bytes = static_cast<double>(read);
  std::string text = fmt::format("{} read in {:.1f} s ({}/s)", human_bytes(bytes),
                                 seconds, human_bytes(bytes / std::max(seconds, 1e-9)));
  if (passed > 0) text += fmt::format(", {} passed between ranks", human_bytes(passed));
  return text;
}

ReadReport total(const ReadReport& mine, comm::Communicator& group) {
  std::array<int64_t, 3> sums = {static_cast<int64_t>(mine.read),
                                 static_cast<int64_t>(mine.wanted),
                                 static_cast<int64_t>(mine.passed)};
  group.all_reduce_wait(sums, comm::ReduceOp::Sum);
  double seconds = mine.seconds;
  group.all_reduce_wait({&seconds, 1, format::DType::F64}, comm::ReduceOp::Max);
  return {static_cast<uint64_t>(sums[0]), static_cast<uint64_t>(sums[1]),
          static_cast<uint64_t>(sums[2]), seconds};
}

ReadReport read_together(const StoredTensors& stored,
                         const std::vector<ReadRequest>& requests,
                         comm::Communicator& node) {
  const auto start = std::chrono::steady_clock::now();
  Wishes wishes;
  comm::on_all_ranks(node, [&] { wishes = make_wishes(stored, requests); });
  const auto runs_of = exchange(wishes, node);
  std::vector<uint64_t> sizes(stored.num_files());
  std::vector<std::vector<int>> readers(stored.num_files());
  for (size_t f = 0; f < sizes.size(); ++f) {
    sizes[f] = stored.file_size(f);
    readers[f] = stored.readers_of(f);
  }
  const NodePlan plan(runs_of, sizes, {}, readers);
  NodeReader reader(stored, wishes, runs_of, plan, node);
  reader.run();
  for (const Unaligned& later : wishes.unaligned) {
    format::convert_elements(later.bytes.data(), later.stored, later.request.out.data(),
                             later.request.dtype,
                             later.bytes.size() / format::dtype_size(later.stored));
  }
  ReadReport report = reader.report();
  for (const WantedRuns& wanted : wishes.runs) report.wanted += wanted.source.bytes();
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace longhaul::checkpoint
