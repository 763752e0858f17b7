#pragma once

#include <vector>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

// What every backend checks before it starts an operation: contracts (LH_CHECK) that name
// the verb and the values.

void check_buffer(const char* verb, const ConstBuffer& buffer);
void check_reducible(const char* verb, DType dtype);
/// in.count / in_parts = out.count / out_parts, and one dtype.
void check_pair(const char* verb, const ConstBuffer& in, int64_t in_parts,
                const ConstBuffer& out, int64_t out_parts);
void check_all_to_all(const ConstBuffer& in, const ConstBuffer& out, int ranks);
void check_root(const Communicator& group, int root);
void check_transfers(const Communicator& group, const std::vector<Transfer>& transfers);

}  // namespace longhaul::comm
