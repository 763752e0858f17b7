#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/comm/options.h"

namespace longhaul::comm {

/// What every backend must do, as checks that all ranks of a group run together
/// (GoogleTest expectations inside). Used by the unit tests and by tests/dist.
struct Conformance {
  std::string name;
  std::function<void(Communicator&)> check;
};
std::vector<Conformance> conformance_checks();

/// A group with options.deadline_seconds = 0.3: rank 0 alone starts a barrier, is told
/// in time, and the others may still join later.
void check_deadline(Communicator& group);

/// Options that cut everything into many messages and chunks.
CommOptions tiny_messages();

}  // namespace longhaul::comm
