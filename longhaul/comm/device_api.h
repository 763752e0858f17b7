#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// What a DeviceCommunicator asks of a library of collectives and of the device's
/// runtime, and no more: nccl.cpp calls NCCL and CUDA, a plug-in brings its own, tests
/// fake them. Results are the library's (kSuccess, kInProgress, or an error of its own)
/// or the runtime's, 0 when well. One instance may serve several communicators of a
/// process. Operations are queued: what is put into one stream runs in the order of the
/// calls, and one that waits for a peer holds up all that come after it in its stream.
class DeviceApi {
 public:
  using Comm = void*;
  using Stream = void*;
  using Event = void*;
  using UniqueId = std::array<char, 128>;
  static constexpr int kSuccess = 0;
  static constexpr int kInProgress = 7;

  virtual ~DeviceApi() = default;

  /// "NCCL": for messages.
  virtual std::string name() const = 0;
  /// Version, and what chooses the order of its sums: for the numerics fingerprint.
  virtual std::string describe() const = 0;

  // The library. Communicators never block: a call may return kInProgress, and the next
  // one waits until async_error no longer says so.
  virtual int unique_id(UniqueId& id) = 0;
  virtual int init_rank(Comm& comm, int ranks, const UniqueId& id, int rank) = 0;
  virtual int all_reduce(const void* in, void* out, size_t count, DType dtype,
                         ReduceOp op, Comm comm, Stream stream) = 0;
  /// `bytes` of each rank.
  virtual int all_gather(const void* in, void* out, size_t bytes, Comm comm,
                         Stream stream) = 0;
  /// `count` elements for each rank.
  virtual int reduce_scatter(const void* in, void* out, size_t count, DType dtype,
                             ReduceOp op, Comm comm, Stream stream) = 0;
  virtual int broadcast(void* buffer, size_t bytes, int root, Comm comm,
                        Stream stream) = 0;
  virtual int send(const void* data, size_t bytes, int peer, Comm comm,
                   Stream stream) = 0;
  virtual int recv(void* data, size_t bytes, int peer, Comm comm, Stream stream) = 0;
  virtual int group_start() = 0;
  virtual int group_end() = 0;
  virtual int async_error(Comm comm, int& state) = 0;
  /// Local, and known to hang at times.
  virtual int abort(Comm comm) = 0;
  virtual std::string error_text(int result, Comm comm) = 0;

  // The runtime.
  virtual int set_device(int device) = 0;
  virtual int create_stream(Stream& stream) = 0;
  virtual int create_event(Event& event) = 0;
  virtual int record(Event event, Stream stream) = 0;
  virtual int stream_waits(Stream stream, Event event) = 0;
  virtual int is_done(Event event, bool& done) = 0;
  virtual std::string device_text(int result) = 0;
};

}  // namespace longhaul::comm
