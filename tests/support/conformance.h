#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/comm/options.h"

namespace longhaul::comm {

/// One requirement of every backend, as a check with GoogleTest's expectations that all
/// ranks of a group run together. The unit tests and tests/dist use it.
struct Conformance {
  std::string name;
  std::function<void(Communicator&)> check;
};
std::vector<Conformance> conformance_checks();

/// Checks a group whose options have deadline_seconds = 0.3: rank 0 alone starts a
/// barrier and gets the error in time, and the others may still join later.
void check_deadline(Communicator& group);

/// Returns options that cut everything into many messages and chunks.
CommOptions tiny_messages();

}  // namespace longhaul::comm
