#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
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

/// Raw memory of `count` elements. The memory belongs to the caller and stays
/// untouched (written: unread and unwritten; read: unwritten) until the Work is waited
/// for.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::F32;
  size_t bytes() const { return static_cast<size_t>(count) * dtype_size(dtype); }
};
struct ConstBuffer {
  ConstBuffer(const void* data_, int64_t count_, DType dtype_)
      : data(data_), count(count_), dtype(dtype_) {}
  ConstBuffer(const Buffer& b) : data(b.data), count(b.count), dtype(b.dtype) {}
  const void* data;
  int64_t count;
  DType dtype;
  size_t bytes() const { return static_cast<size_t>(count) * dtype_size(dtype); }
};

/// A started operation. Waiting twice is allowed; destruction never waits, never
/// communicates. An operation that misses its deadline throws TemporaryError, which
/// names step and phase, the operation, its number and label, this rank and the seconds
/// waited; an operation that fails (a peer died) throws with the same names.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
  /// What the caller puts into the device's current stream from now on comes after the
  /// operation; the host goes on where the backend can do that, else as wait(). The
  /// operation's buffers may be given back: memory is used again in the stream's order.
  virtual void order() { wait(); }
  /// True when it has ended; drives progress where the backend needs that.
  virtual bool test() = 0;
};
using WorkPtr = std::unique_ptr<Work>;

/// One transfer of a group of sends and receives.
struct Transfer {
  enum class Kind { Send, Recv };
  Kind kind;
  int peer;
  Buffer buffer;  ///< for Send it is only read
};

/// A group of ranks with the verbs that training needs.
/// Every verb but rank(), size(), send_recv(), progress() and abort() is Collective: all
/// ranks of the group call it, in the same order, with matching counts and dtypes. Sums
/// are added in rank order (fp32 inside for bf16), so results are repeatable and equal on
/// all ranks. Thread contract: one thread owns all communicators of a process.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "world", "dp" ...: for messages.
  virtual const std::string& name() const = 0;

  /// F32, BF16, F64, I64; Sum or Max, in place.
  virtual WorkPtr all_reduce(Buffer buffer, ReduceOp op) = 0;
  /// out.count = size() * in.count; part r comes from rank r. `in` may be the own part of
  /// out.
  virtual WorkPtr all_gather(ConstBuffer in, Buffer out) = 0;
  /// in.count = size() * out.count; `out` may be the own part of in.
  virtual WorkPtr reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) = 0;
  /// Equal parts; in.count = out.count, a multiple of size().
  virtual WorkPtr all_to_all(ConstBuffer in, Buffer out) = 0;
  virtual WorkPtr broadcast(Buffer buffer, int root) = 0;
  /// Only the named peers take part. Messages of a pair match in the order of its calls;
  /// they start at once and may overtake collectives of the same group.
  virtual WorkPtr send_recv(std::vector<Transfer> transfers) = 0;
  virtual WorkPtr barrier() = 0;
  /// The ranks with the same colour, ordered by key. Collective, blocks.
  virtual std::unique_ptr<Communicator> split(int color, int key, std::string name) = 0;
  /// Advances everything that this rank has under way, without waiting: for a rank that
  /// is long busy elsewhere. Throws what has failed where nobody waits for it.
  virtual void progress() {}
  /// Transfers run one group after the other, in the order of send_recv's calls: a
  /// receive holds up the sends behind it, so that calls are to be made in an order in
  /// which every rank can come to an end.
  virtual bool transfers_in_order() const { return false; }
  /// What bounds every wait of the group.
  virtual const CommOptions& limits() const;
  /// Ends the process group without a collective; called on one rank after a failure.
  virtual void abort(int exit_code) = 0;
  /// What this rank has sent through this communicator. Every backend has both; what only
  /// wraps another communicator need not.
  virtual const CommCounts& counts() const;
  /// What this rank is doing; one for all communicators that come from one world.
  virtual Ledger& ledger();

  // Helpers on top of the verbs; each waits, but for the one that says otherwise.
  void all_reduce_wait(Buffer buffer, ReduceOp op) { all_reduce(buffer, op)->wait(); }
  /// For what the device goes on with: see Work::order.
  void all_reduce_order(Buffer buffer, ReduceOp op) { all_reduce(buffer, op)->order(); }
  void barrier_wait() { barrier()->wait(); }
  /// Every rank's bytes, in rank order. Collective.
  virtual std::vector<std::string> gather_strings(const std::string& mine);
  /// The root's bytes on every rank. Collective.
  virtual std::string broadcast_string(const std::string& value, int root);
  /// True if any rank says so. Collective.
  virtual bool any(bool mine);
};

}  // namespace longhaul::comm
