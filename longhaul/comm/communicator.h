#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "longhaul/comm/counts.h"
#include "longhaul/format/dtype.h"

namespace longhaul::comm {

class Ledger;
struct CommOptions;

enum class ReduceOp { Sum, Max };

/// Raw memory of `count` elements. The memory belongs to the caller. Until the
/// operation's Work was waited for, the caller does not write to memory that the
/// operation reads, and neither reads nor writes memory that the operation writes.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;
  format::DType dtype = format::DType::F32;
  /// The tensor (a c10::TensorImpl) that has this memory, for devices that know tensors
  /// and no addresses; null if the memory is no tensor's. It lives during the call of the
  /// verb.
  void* tensor = nullptr;
  size_t bytes() const { return static_cast<size_t>(count) * format::dtype_size(dtype); }
};
struct ConstBuffer {
  ConstBuffer(const void* data_, int64_t count_, format::DType dtype_)
      : data(data_), count(count_), dtype(dtype_) {}
  ConstBuffer(const Buffer& b)
      : data(b.data), count(b.count), dtype(b.dtype), tensor(b.tensor) {}
  const void* data;
  int64_t count;
  format::DType dtype;
  void* tensor = nullptr;
  size_t bytes() const { return static_cast<size_t>(count) * format::dtype_size(dtype); }
};

/// A started operation. Waiting twice is allowed. Destroying a Work neither waits nor
/// communicates. An operation that misses its deadline throws TemporaryError, which names
/// step and phase, the operation, its number and label, this rank and the seconds waited.
/// The error of an operation that fails (a peer died) names the same things.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
  /// Puts the operation before everything that the caller puts into the device's current
  /// stream from now on. The host goes on at once if the backend can do that; otherwise
  /// this is wait(). The operation's buffers may be freed afterwards, since memory is
  /// used again in the stream's order.
  virtual void order() { wait(); }
  /// Returns true when the operation has ended. Also advances the operation if the
  /// backend does not do so by itself.
  virtual bool test() = 0;
};
using WorkPtr = std::unique_ptr<Work>;

/// An operation that has ended, such as one without bytes.
class DoneWork : public Work {
 public:
  void wait() override {}
  bool test() override { return true; }
};

/// One message of a send_recv.
struct Transfer {
  enum class Kind { Send, Recv };
  Kind kind;
  int peer;
  Buffer buffer;  ///< a Send only reads it
};

/// An operation that a communicator hands to its backend: a verb and its arguments.
/// Members that the verb does not use keep their defaults.
struct Request {
  Verb verb;
  ConstBuffer in = Buffer{};  ///< the same as `out` for all_reduce and broadcast
  Buffer out = {};
  ReduceOp op = ReduceOp::Sum;
  int root = 0;
  std::vector<Transfer> transfers = {};
  /// Returns the bytes of the larger buffer, or of all transfers.
  size_t bytes() const;
};

/// A group of ranks with the verbs that training needs.
/// Every verb but rank(), size(), send_recv(), progress() and abort() is Collective: all
/// ranks of the group call it, in the same order, with matching counts and dtypes.
/// Results are equal on all ranks. Groups of host memory add sums in rank order, and bf16
/// in fp32, so that results are repeatable. A device's library adds in its own way: a
/// ring of NCCL rounds bf16 at each rank, and a switch (NVLS) adds in fp32. Verbs check
/// their arguments (an internal Error names the verb and the values) and hand them to
/// start(). Thread contract: one thread owns all communicators of a process.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns the group's name in messages: "world", "dp" ...
  virtual const std::string& name() const = 0;

  /// Reduces `buffer` over the ranks in place. dtype: F32, BF16, F64 or I64.
  WorkPtr all_reduce(Buffer buffer, ReduceOp op);
  /// Gathers the `in` of every rank: part r of `out` comes from rank r, and `out.count`
  /// is `size()` times `in.count`. `in` may be this rank's part of `out`.
  WorkPtr all_gather(ConstBuffer in, Buffer out);
  /// Reduces `in` over the ranks: `out` becomes this rank's part of the result, and
  /// `in.count` is `size()` times `out.count`. `out` may be this rank's part of `in`.
  WorkPtr reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op);
  /// Sends part r of `in` to rank r; part r of `out` comes from rank r. `in.count` equals
  /// `out.count` and is a multiple of `size()`.
  WorkPtr all_to_all(ConstBuffer in, Buffer out);
  WorkPtr broadcast(Buffer buffer, int root);
  /// Sends to and receives from the named peers, who alone take part. Messages between
  /// two ranks match in the order of the calls. Transfers start at once and may overtake
  /// collectives of the same group.
  WorkPtr send_recv(std::vector<Transfer> transfers);
  WorkPtr barrier();
  /// Starts an operation whose arguments were checked. The verbs call this function, and
  /// so do groups that pass operations on to another group.
  virtual WorkPtr start(Request request) = 0;
  /// Returns the group of the ranks with the same colour, ordered by key. Waits for all
  /// ranks. Collective.
  virtual std::unique_ptr<Communicator> split(int color, int key, std::string name) = 0;
  /// Advances everything that this rank has under way, without waiting. A rank that is
  /// busy elsewhere for long calls this now and then. Throws the error of an operation
  /// that has failed while nobody waited for it.
  virtual void progress() {}
  /// Returns whether the calls of send_recv are carried out one after the other. If so, a
  /// receive holds up the sends of later calls, and the order of the calls must let every
  /// rank come to an end.
  virtual bool transfers_in_order() const { return false; }
  /// Returns the limits of every wait of the group.
  virtual const CommOptions& limits() const = 0;
  /// Ends all ranks' processes without a collective. Called on one rank after a failure.
  virtual void abort(int exit_code) = 0;
  /// Returns the calls of this rank, and the bytes that the rank has sent, through this
  /// communicator.
  virtual const CommCounts& counts() const = 0;
  /// Returns the ledger of this rank, which all communicators that come from one world
  /// share.
  virtual Ledger& ledger() = 0;

  // Helpers on top of the verbs. Every helper but all_reduce_order waits for its result.
  void all_reduce_wait(Buffer buffer, ReduceOp op) { all_reduce(buffer, op)->wait(); }
  /// Reduces numbers in place.
  void all_reduce_wait(std::span<int64_t> numbers, ReduceOp op) {
    all_reduce_wait({numbers.data(), std::ssize(numbers), format::DType::I64}, op);
  }
  void all_reduce_wait(std::span<double> numbers, ReduceOp op) {
    all_reduce_wait({numbers.data(), std::ssize(numbers), format::DType::F64}, op);
  }
  /// Reduces, and orders the result before what the caller's stream does next
  /// (Work::order).
  void all_reduce_order(Buffer buffer, ReduceOp op) { all_reduce(buffer, op)->order(); }
  void barrier_wait() { barrier()->wait(); }
  /// Returns every rank's bytes, in rank order. Collective.
  virtual std::vector<std::string> gather_strings(const std::string& mine);
  /// Returns the root's bytes on every rank. Collective.
  virtual std::string broadcast_string(const std::string& value, int root);
  /// Returns true on every rank if `mine` is true on any. Collective.
  virtual bool any(bool mine);

 private:
  WorkPtr check_and_start(Request request);
};

}  // namespace longhaul::comm
