#pragma once

#include <sys/types.h>

#include <memory>

#include "longhaul/base/file.h"
#include "longhaul/serve/sequence_queue.h"

namespace longhaul::apps {

/// The process longhaul-serve, which speaks HTTP, and the sequences that come from it.
/// The process ends with this object.
class HttpProcess {
 public:
  /// Starts the process, and waits until it listens. Throws InputError if the program is
  /// not there, and ConfigError if the address cannot be had.
  explicit HttpProcess(const serve::Served& served);
  ~HttpProcess();
  HttpProcess(const HttpProcess&) = delete;
  HttpProcess& operator=(const HttpProcess&) = delete;

  int port() const { return port_; }
  serve::SequenceQueue& queue() { return *queue_; }

 private:
  Descriptor socket_;
  pid_t child_ = -1;
  int port_ = 0;
  std::unique_ptr<serve::SequenceQueue> queue_;
};

}  // namespace longhaul::apps
