#include "apps/serve/http_process.h"

#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "longhaul/base/failure.h"
#include "longhaul/base/process.h"
#include "longhaul/base/refused.h"
#include "longhaul/system/messages.h"

namespace longhaul::apps {

HttpProcess::HttpProcess(const serve::Served& served) {
  const fs::path program = fs::path(this_program()).parent_path() / "longhaul-serve";
  if (!is_seen(program)) {
    fail_input("serve", "{} is not there; install the whole program", program.string());
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw refused("serve", "a pair of sockets", errno);
  }
  socket_ = Descriptor(ends[0]);
  Descriptor of_child(ends[1]);
  child_ = system::start_own_process("serve", program, {of_child.get()});
  of_child.reset();
  std::string reply;
  if (!system::send_text(socket_.get(), json_text(served.json())) ||
      !system::receive_text(socket_.get(), reply, serve::kMostMessageBytes)) {
    fail_temporary("serve", "{} has ended at once; look for its words above",
                   program.string());
  }
  port_ = std::stoi(open_reply(std::move(reply)));
  queue_ = std::make_unique<serve::SequenceQueue>(socket_.get());
}

HttpProcess::~HttpProcess() {
  queue_.reset();
  socket_.reset();
  system::await_own_process(child_);
}

}  // namespace longhaul::apps
