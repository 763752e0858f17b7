#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::system {

// Two processes of this program send whole messages to each other over a stream socket.
// One of them has started the other.

/// Starts a program of this project with `descriptors` as its descriptors 3, 4 and so on.
/// Its standard input is empty, and no signal is blocked. Throws TemporaryError of `area`
/// if the system refuses the process.
pid_t start_own_process(const std::string& area, const fs::path& program,
                        const std::vector<int>& descriptors,
                        std::vector<std::string> arguments = {});

/// Waits until a process has ended that ends by itself when its socket closes. After five
/// seconds the process is killed and left behind: if its disk hangs, SIGKILL does not end
/// it either.
void await_own_process(pid_t process);

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
