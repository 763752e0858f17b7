#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace longhaul::system {

// Two processes of this program send whole messages to each other over a stream socket.

/// Sends all bytes, whatever signals interrupt. Returns false if the other end has gone.
bool send_all(int socket, const void* data, size_t size);
/// Receives exactly `size` bytes. Returns false if the other end has gone.
bool receive_all(int socket, void* data, size_t size);
/// Sends a text with its length before it.
bool send_text(int socket, const std::string& text);
/// Receives what send_text() has sent. Returns false if the other end has gone, or the
/// text is longer than `limit`.
bool receive_text(int socket, std::string& text, uint64_t limit);

}  // namespace longhaul::system
