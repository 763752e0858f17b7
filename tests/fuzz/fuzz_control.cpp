// Takes any bytes on a control connection. They come from a peer that knows nothing, at
// either side of the handshake. They come in the middle of an authentic stream, and as a
// change of an authentic message. The result is an InputError or nothing, never a message
// that was not sent.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/cluster/control/control_session.h"

namespace {

using longhaul::cluster::ControlRole;
using longhaul::cluster::ControlSession;
using longhaul::cluster::Secret;

using Bytes = std::span<const std::byte>;

Bytes bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string take_output(ControlSession& from) {
  std::string bytes(from.output());
  from.written(bytes.size());
  return bytes;
}

/// Feeds the bytes in pieces, whose lengths the bytes themselves give.
void feed(ControlSession& session, Bytes bytes) {
  while (!bytes.empty()) {
    const size_t part = std::min(bytes.size(), 1 + (size_t(bytes[0]) & 63));
    session.feed(bytes.first(part));
    bytes = bytes.subspan(part);
  }
}

void stranger(ControlRole role, const Secret& secret, Bytes bytes) {
  ControlSession session(role, secret);
  try {
    feed(session, bytes);
  } catch (const longhaul::InputError&) {
  }
  if (session.established() || session.take_message()) std::abort();
}

void inside(const Secret& secret, Bytes bytes, bool changes) {
  ControlSession near(ControlRole::Connects, secret);
  ControlSession far(ControlRole::Accepts, secret);
  for (int turn = 0; turn < 2; ++turn) {
    far.feed(bytes_of(take_output(near)));
    near.feed(bytes_of(take_output(far)));
  }
  if (!near.established() || !far.established()) std::abort();
  const std::string sent = "{\"order\":\"go on\"}";
  near.send(sent);
  std::string wire = take_output(near);
  bool same = true;
  if (changes) {
    for (size_t i = 0; i < std::min(wire.size(), bytes.size()); ++i) {
      same = same && bytes[i] == std::byte{0};
      wire[i] = static_cast<char>(wire[i] ^ static_cast<char>(bytes[i]));
    }
  } else {
    wire.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    same = false;
  }
  try {
    feed(far, bytes_of(wire));
  } catch (const longhaul::InputError&) {
  }
  const std::optional<std::string> message = far.take_message();
  if (message.has_value() != same || (message && *message != sent)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Secret kSecret = Secret::make();
  if (size == 0) return 0;
  const Bytes rest = std::as_bytes(std::span(data + 1, size - 1));
  switch (data[0] % 4) {
    case 0:
      stranger(ControlRole::Accepts, kSecret, rest);
      break;
    case 1:
      stranger(ControlRole::Connects, kSecret, rest);
      break;
    default:
      inside(kSecret, rest, data[0] % 4 == 3);
      break;
  }
  return 0;
}
