#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace longhaul::comm {

/// Messages that were started and are waited for together. Destroying a Batch never
/// waits.
class Batch {
 public:
  virtual ~Batch() = default;
  /// Starts a send. Nobody may write to `data` until test() returns true. A message of
  /// zero bytes is sent too.
  virtual void send(int peer, const void* data, size_t bytes, int tag) = 0;
  /// Starts a receive. Throws if the message does not have exactly `bytes` bytes.
  virtual void recv(int peer, void* data, size_t bytes, int tag) = 0;
  /// Advances the messages. Returns true when every message has ended; the batch is then
  /// empty.
  virtual bool test() = 0;
};

/// Messages between the ranks of one group: what a StagedCommunicator needs of a backend.
/// Between two ranks, messages with the same tag arrive in the order of the calls.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::unique_ptr<Batch> open() = 0;
  /// Returns the transport of a part of this group, which this rank belongs to. `members`
  /// lists the part's ranks in this group, in their new order; each part has a `color` of
  /// its own. Collective.
  virtual std::unique_ptr<Transport> split(int color, std::span<const int> members) = 0;
  virtual void abort(int exit_code) = 0;
};

/// All tags of a StagedCommunicator are below this.
inline constexpr int kTagLimit = 32768;

}  // namespace longhaul::comm
