#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// The calls of NCCL and of the CUDA runtime that NcclCommunicator makes, and no others:
/// nccl.cpp makes them, tests fake them. Results are ncclResult_t or cudaError_t, 0 when
/// well. One instance may serve several communicators of a process.
class NcclApi {
 public:
  using Comm = void*;
  using Stream = void*;
  using Event = void*;
  using UniqueId = std::array<char, 128>;
  static constexpr int kSuccess = 0;
  static constexpr int kInProgress = 7;

  virtual ~NcclApi() = default;

  // NCCL. Communicators never block: a call may return kInProgress, and the next one
  // waits until async_error no longer says so.
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
  virtual std::string nccl_text(int result, Comm comm) = 0;

  // CUDA.
  virtual int set_device(int device) = 0;
  virtual int create_stream(Stream& stream) = 0;
  virtual int create_event(Event& event) = 0;
  virtual int record(Event event, Stream stream) = 0;
  virtual int stream_waits(Stream stream, Event event) = 0;
  virtual int is_done(Event event, bool& done) = 0;
  virtual std::string cuda_text(int result) = 0;
};

}  // namespace longhaul::comm
