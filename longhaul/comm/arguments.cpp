#include "longhaul/comm/arguments.h"

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/comm/reduce.h"

namespace longhaul::comm {

void check_buffer(const char* verb, const ConstBuffer& buffer) {
  LH_CHECK(buffer.count >= 0, "comm", "{}: count = {} is negative", verb, buffer.count);
  LH_CHECK(buffer.data != nullptr || buffer.count == 0, "comm",
           "{}: {} elements at a null address", verb, buffer.count);
}

void check_reducible(const char* verb, DType dtype) {
  LH_CHECK(is_reducible(dtype), "comm",
           "{}: {} cannot be reduced; F32, BF16, F64 and I64 can", verb,
           dtype_name(dtype));
}

void check_pair(const char* verb, const ConstBuffer& in, int64_t in_parts,
                const ConstBuffer& out, int64_t out_parts) {
  check_buffer(verb, in);
  check_buffer(verb, out);
  LH_CHECK(in.dtype == out.dtype, "comm", "{}: in is {}, out is {}", verb,
           dtype_name(in.dtype), dtype_name(out.dtype));
  // in.count / in_parts = out.count / out_parts, without a product that could overflow.
  LH_CHECK(in.count % in_parts == 0 && out.count % out_parts == 0 &&
               in.count / in_parts == out.count / out_parts,
           "comm", "{}: in.count = {} and out.count = {} do not fit {} ranks", verb,
           in.count, out.count, std::max(in_parts, out_parts));
}

void check_all_to_all(const ConstBuffer& in, const ConstBuffer& out, int ranks) {
  check_pair("all_to_all", in, ranks, out, ranks);
  LH_CHECK(in.count == 0 || in.data != out.data, "comm",
           "all_to_all: in and out are the same memory");
}

void check_root(const Communicator& group, int root) {
  LH_CHECK(root >= 0 && root < group.size(), "comm",
           "broadcast: root = {} is no rank of '{}' ({} ranks)", root, group.name(),
           group.size());
}

void check_transfers(const Communicator& group, const std::vector<Transfer>& transfers) {
  for (const Transfer& t : transfers) {
    check_buffer("send_recv", t.buffer);
    LH_CHECK(t.peer >= 0 && t.peer < group.size() && t.peer != group.rank(), "comm",
             "send_recv: peer = {} is no other rank of '{}' (rank {} of {})", t.peer,
             group.name(), group.rank(), group.size());
  }
}

}  // namespace longhaul::comm
