#pragma once

#include <memory>
#include <string>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/over_host.h"

namespace longhaul::testing {

/// A group whose sums and broadcasts are left out: every rank keeps its own values. Other
/// verbs are not expected of it.
class DeafGroup : public comm::OverHost {
 public:
  /// `group` must outlive this.
  explicit DeafGroup(comm::Communicator& group) : OverHost(comm::borrowed(group)) {}

  comm::WorkPtr start(comm::Request request) override {
    if (request.verb == comm::Verb::AllReduce || request.verb == comm::Verb::Broadcast) {
      return std::make_unique<Nothing>();
    }
    throw Error(ErrorKind::Internal, "tool", "a deaf group leaves out no other verb");
  }
  std::unique_ptr<comm::Communicator> split(int color, int key,
                                            std::string name) override {
    return host().split(color, key, std::move(name));
  }

 private:
  class Nothing : public comm::Work {
   public:
    void wait() override {}
    bool test() override { return true; }
  };
};

}  // namespace longhaul::testing
