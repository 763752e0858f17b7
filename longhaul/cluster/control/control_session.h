#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "longhaul/cluster/control/secret.h"

namespace longhaul::cluster {

// The control protocol, without sockets: bytes in, bytes out.
//
//   connecting side                      accepting side
//   "LHCTRL01", challenge (32)     ->
//                                  <-    "LHCTRL01", challenge (32), proof (32)
//   proof (32), stream header (24) ->
//                                  <-    stream header (24)
//
// A proof is BLAKE2b, keyed with the secret, over the role's name and both challenges; so
// are the two keys, one for each direction. Both challenges are fresh: nothing of a
// recorded session is worth anything in another. After that each message is a length
// (u32, little-endian) and as many bytes of a crypto_secretstream (XChaCha20-Poly1305):
// what is changed, left out, doubled or moved is noticed, and so is an end without a
// goodbye.

/// The longest message that is sent or taken.
inline constexpr size_t kMaxMessageBytes = size_t{4} << 20;
/// The area of its errors.
inline constexpr const char* kControlArea = "control";
/// Taken from a socket at once.
inline constexpr size_t kControlReadBytes = size_t{1} << 16;

enum class ControlRole { Connects, Accepts };

/// One side of one connection. What is wrong with the other side's bytes throws
/// InputError; the session is then over and so should the connection be.
class ControlSession {
 public:
  ControlSession(ControlRole role, const Secret& secret);
  ~ControlSession();
  ControlSession(ControlSession&&) noexcept;
  ControlSession& operator=(ControlSession&&) noexcept;

  /// Bytes of the other side, in any pieces. Holds no more of them than a message needs.
  void feed(std::span<const std::byte> bytes);
  /// The other side has proved that it knows the secret, and messages can be sent.
  bool established() const;
  /// The other side has said goodbye; nothing comes after it.
  bool ended() const;
  /// The oldest message that has come and was not taken.
  std::optional<std::string> take_message();

  /// Queues a message; the session must be established and not said goodbye.
  void send(std::string_view message);
  /// Queues a goodbye, once.
  void say_goodbye();
  /// What has to be written to the other side; written(n) drops its first n bytes.
  std::string_view output() const;
  void written(size_t bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::cluster
