#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// What a DeviceCommunicator needs of a library of collectives and of the device's
/// runtime. nccl.cpp calls NCCL and CUDA, a plug-in brings an implementation of its own,
/// and tests fake one. Results are codes of the library (kSuccess, kInProgress, or an
/// error of its own) or of the runtime (0 for success). One instance may serve several
/// communicators of a process. Operations are queued: the operations of one stream run in
/// the order of the calls, and an operation that waits for a peer holds up all later ones
/// of its stream.
class DeviceApi {
 public:
  using Comm = void*;
  using Stream = void*;
  using Event = void*;
  using UniqueId = std::array<char, 128>;
  static constexpr int kSuccess = 0;
  static constexpr int kInProgress = 7;
  /// What a rank gives for a communicator. All ranks give the same but for `rank`.
  struct Members {
    int ranks = 1;
    int rank = 0;
    std::vector<UniqueId> ids;  ///< by which the ranks meet; at least one
    /// The most thread blocks that an operation may take; 0: the library decides.
    int most_blocks = 0;
  };

  virtual ~DeviceApi() = default;

  /// Returns the library's name in messages: "NCCL".
  virtual std::string name() const = 0;
  /// Returns the library's version and the settings that choose the order of its sums,
  /// for the numerics fingerprint.
  virtual std::string describe() const = 0;
  /// Sets what the library reads from the environment at its first call, where people
  /// have set nothing: one order for all communicators, and sums that repeat bitwise if
  /// `repeats`. Must be called before all functions below. Returns what the log is to
  /// warn of.
  virtual std::vector<std::string> prepare(bool /*repeats*/) { return {}; }

  // The functions of the library. Its communicators never block, so a call may return
  // kInProgress. Then the caller makes the next call only when async_error no longer says
  // kInProgress.
  virtual int unique_id(UniqueId& id) = 0;
  /// Returns how many ranks may meet by one id; a larger communicator takes several.
  virtual int ranks_of_id() const { return std::numeric_limits<int>::max(); }
  /// Makes a communicator. Between group_start and group_end several are made together.
  /// `comm` keeps its address until the call is carried out.
  virtual int init_rank(Comm& comm, const Members& members) = 0;
  virtual int all_reduce(const void* in, void* out, size_t count, format::DType dtype,
                         ReduceOp op, Comm comm, Stream stream) = 0;
  /// Gathers parts of `bytes` bytes, one of each rank.
  virtual int all_gather(const void* in, void* out, size_t bytes, Comm comm,
                         Stream stream) = 0;
  /// Reduces over the ranks and scatters the result, `count` elements to each rank.
  virtual int reduce_scatter(const void* in, void* out, size_t count, format::DType dtype,
                             ReduceOp op, Comm comm, Stream stream) = 0;
  virtual int broadcast(void* buffer, size_t bytes, int root, Comm comm,
                        Stream stream) = 0;
  virtual int send(const void* data, size_t bytes, int peer, Comm comm,
                   Stream stream) = 0;
  virtual int recv(void* data, size_t bytes, int peer, Comm comm, Stream stream) = 0;
  virtual int group_start() = 0;
  virtual int group_end() = 0;
  virtual int async_error(Comm comm, int& state) = 0;
  virtual std::string error_text(int result, Comm comm) = 0;
  /// Returns the bytes of the device's memory that a communicator has now; nothing if the
  /// library does not tell.
  virtual std::optional<uint64_t> device_bytes(Comm /*comm*/) { return std::nullopt; }

  // The functions of the runtime.
  virtual int set_device(int device) = 0;
  /// Makes a stream for communication, whose kernels go before those of computation where
  /// the device has priorities.
  virtual int create_stream(Stream& stream) = 0;
  virtual int create_event(Event& event) = 0;
  virtual int record(Event event, Stream stream) = 0;
  virtual int stream_waits(Stream stream, Event event) = 0;
  virtual int is_done(Event event, bool& done) = 0;
  virtual std::string device_text(int result) = 0;
};

}  // namespace longhaul::comm
