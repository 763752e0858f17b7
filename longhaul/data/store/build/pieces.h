#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "longhaul/data/input/input_set.h"
#include "longhaul/system/worker_pool.h"

namespace longhaul::data {

class MemoryBudget;

/// Bytes of a MemoryBudget, which the destructor gives back.
class Loan {
 public:
  Loan(Loan&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
  Loan& operator=(Loan&&) = delete;
  ~Loan();

 private:
  friend class MemoryBudget;
  Loan(MemoryBudget& budget, uint64_t bytes) : budget_(&budget), bytes_(bytes) {}
  MemoryBudget* budget_;
  uint64_t bytes_;
};

/// A number of bytes that the threads of a build share. Waiting threads are served in the
/// order of their requests, so that no large request waits for ever. Any thread may call
/// it.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes) : total_(bytes) {}

  /// Lends bytes without waiting. Returns nothing when the bytes do not fit or another
  /// thread waits.
  std::optional<Loan> try_lend(uint64_t bytes);
  /// Waits until the bytes fit. A request above the whole budget counts as a request for
  /// the whole budget.
  Loan lend(uint64_t bytes);

 private:
  friend class Loan;
  uint64_t counted(uint64_t bytes) const { return bytes < total_ ? bytes : total_; }
  bool fits(uint64_t bytes) const { return taken_ + counted(bytes) <= total_; }
  void give_back(uint64_t bytes);

  uint64_t total_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t taken_ = 0;
  uint64_t next_ticket_ = 0;
  uint64_t serving_ = 0;
};

/// Raw records that one worker processes at a time.
struct Piece {
  std::vector<RawRecord> records;
  int64_t first = 0;  ///< number of the piece's first record in its part
  uint64_t bytes = 0;
};

/// The threads and the memory that the parts of a build's input share.
struct Workshop {
  system::WorkerPool& pool;
  MemoryBudget& memory;
  size_t most_pending;  ///< the most pieces of one part in progress at once
  /// Read before each piece. True ends the part, because another part has failed.
  const std::atomic<bool>& stop;
};

/// Thrown in parts that end because another part has failed.
struct Stopped {};

inline constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
/// Bytes of memory that a piece takes while it is parsed and encoded, for each byte of
/// its records: the record, the parser's copy, the text, the ids and a growing vector.
inline constexpr uint64_t kMemoryPerByte = 8;

/// Takes the records of a part from a reader in pieces, lets the pool do `work` on each,
/// and gives the results to `write` in the order of the pieces. `work` runs on many
/// threads, `write(result)` on the thread that calls run().
template <typename Result>
class PieceLine {
 public:
  using Work = std::function<Result(Piece&)>;
  using Write = std::function<void(Result&)>;

  PieceLine(Workshop& shop, Work work, Write write)
      : shop_(shop), work_(std::move(work)), write_(std::move(write)) {}
  /// Waits for the pieces in progress, since their tasks refer to this object.
  ~PieceLine() {
    for (Pending& pending : pending_) pending.result.wait();
  }
  PieceLine(const PieceLine&) = delete;
  PieceLine& operator=(const PieceLine&) = delete;

  void run(RecordReader& reader) {
    while (true) {
      Piece piece = next_piece(reader);
      if (piece.records.empty()) break;
      if (shop_.stop) throw Stopped{};
      push(std::move(piece));
      while (pending_.size() >= shop_.most_pending) write_oldest();
    }
    while (!pending_.empty()) write_oldest();
  }

 private:
  struct Pending {
    std::future<Result> result;
    Loan memory;
  };

  Piece next_piece(RecordReader& reader) {
    Piece piece;
    piece.first = records_;
    RawRecord record;
    while (piece.bytes < kPieceBytes && reader.next(record)) {
      piece.bytes += record.memory_bytes();
      piece.records.push_back(std::move(record));
      record = RawRecord();
    }
    records_ += static_cast<int64_t>(piece.records.size());
    return piece;
  }

  /// Returns memory for a piece. Writes this part's own results before it waits for
  /// memory, since other parts may wait for the memory that these results hold.
  Loan memory_for(const Piece& piece) {
    const uint64_t bytes = piece.bytes * kMemoryPerByte;
    while (!pending_.empty()) {
      if (std::optional<Loan> loan = shop_.memory.try_lend(bytes)) {
        return std::move(*loan);
      }
      write_oldest();
    }
    return shop_.memory.lend(bytes);
  }

  void push(Piece piece) {
    Loan memory = memory_for(piece);
    pending_.push_back({shop_.pool.add([this, moved = std::move(piece)]() mutable {
                          Result result = work_(moved);
                          // Frees the piece's buffers before the result waits to be
                          // written.
                          moved = Piece();
                          return result;
                        }),
                        std::move(memory)});
  }

  void write_oldest() {
    Pending oldest = std::move(pending_.front());
    pending_.pop_front();
    Result result = oldest.result.get();
    write_(result);
  }

  Workshop& shop_;
  Work work_;
  Write write_;
  std::deque<Pending> pending_;
  int64_t records_ = 0;
};

}  // namespace longhaul::data
