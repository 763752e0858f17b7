#include "longhaul/comm/communicator.h"

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/reduce.h"

namespace longhaul::comm {

namespace {

void check_buffer(const char* verb, const ConstBuffer& buffer) {
  LH_CHECK(buffer.count >= 0, "comm", "{}: count = {} is negative", verb, buffer.count);
  LH_CHECK(buffer.data != nullptr || buffer.count == 0, "comm",
           "{}: {} elements at a null address", verb, buffer.count);
}

/// Throws unless the two buffers have one dtype, and the numbers of elements that the
/// verb requires for so many ranks.
void check_buffers(const Request& request, int ranks) {
  const ConstBuffer& in = request.in;
  const Buffer& out = request.out;
  const Verb verb = request.verb;
  const char* name = verb_name(verb);
  check_buffer(name, in);
  check_buffer(name, out);
  LH_CHECK(in.dtype == out.dtype, "comm", "{}: in is {}, out is {}", name,
           format::dtype_name(in.dtype), format::dtype_name(out.dtype));
  const bool all_to_all = verb == Verb::AllToAll;
  const int in_parts = verb == Verb::ReduceScatter || all_to_all ? ranks : 1;
  const int out_parts = verb == Verb::AllGather || all_to_all ? ranks : 1;
  // The check multiplies nothing, since a product could overflow.
  LH_CHECK(in.count % in_parts == 0 && out.count % out_parts == 0 &&
               in.count / in_parts == out.count / out_parts,
           "comm", "{}: in.count = {} and out.count = {} do not fit {} ranks", name,
           in.count, out.count, ranks);
  LH_CHECK(!all_to_all || in.count == 0 || in.data != out.data, "comm",
           "all_to_all: in and out are the same memory");
}

void check_request(const Communicator& group, const Request& request) {
  const Verb verb = request.verb;
  check_buffers(request, group.size());
  LH_CHECK((verb != Verb::AllReduce && verb != Verb::ReduceScatter) ||
               is_reducible(request.in.dtype),
           "comm", "{}: {} cannot be reduced; F32, BF16, F64 and I64 can",
           verb_name(verb), format::dtype_name(request.in.dtype));
  LH_CHECK(request.root >= 0 && request.root < group.size(), "comm",
           "broadcast: root = {} is no rank of '{}' ({} ranks)", request.root,
           group.name(), group.size());
  for (const Transfer& t : request.transfers) {
    check_buffer("send_recv", t.buffer);
    LH_CHECK(t.peer >= 0 && t.peer < group.size() && t.peer != group.rank(), "comm",
             "send_recv: peer = {} is no other rank of '{}' (rank {} of {})", t.peer,
             group.name(), group.rank(), group.size());
  }
}

}  // namespace

size_t Request::bytes() const {
  size_t sum = std::max(in.bytes(), out.bytes());
  for (const Transfer& t : transfers) sum += t.buffer.bytes();
  return sum;
}

WorkPtr Communicator::check_and_start(Request request) {
  check_request(*this, request);
  return start(std::move(request));
}

WorkPtr Communicator::all_reduce(Buffer buffer, ReduceOp op) {
  return check_and_start({Verb::AllReduce, buffer, buffer, op});
}

WorkPtr Communicator::all_gather(ConstBuffer in, Buffer out) {
  return check_and_start({Verb::AllGather, in, out});
}

WorkPtr Communicator::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) {
  return check_and_start({Verb::ReduceScatter, in, out, op});
}

WorkPtr Communicator::all_to_all(ConstBuffer in, Buffer out) {
  return check_and_start({Verb::AllToAll, in, out});
}

WorkPtr Communicator::broadcast(Buffer buffer, int root) {
  return check_and_start(
      {.verb = Verb::Broadcast, .in = buffer, .out = buffer, .root = root});
}

WorkPtr Communicator::send_recv(std::vector<Transfer> transfers) {
  return check_and_start({.verb = Verb::SendRecv, .transfers = std::move(transfers)});
}

WorkPtr Communicator::barrier() { return check_and_start({Verb::Barrier}); }

std::vector<std::string> Communicator::gather_strings(const std::string& mine) {
  const auto ranks = static_cast<size_t>(size());
  const auto length = static_cast<int64_t>(mine.size());
  std::vector<int64_t> lengths(ranks);
  all_gather({&length, 1, format::DType::I64},
             {lengths.data(), size(), format::DType::I64})
      ->wait();

  // All parts are equal in size, so that every string takes the room of the longest.
  const int64_t room = *std::max_element(lengths.begin(), lengths.end());
  const auto room_bytes = static_cast<size_t>(room);
  std::string padded = mine;
  padded.resize(room_bytes);
  std::string all(room_bytes * ranks, '\0');
  all_gather({padded.data(), room, format::DType::U8},
             {all.data(), room * size(), format::DType::U8})
      ->wait();
  std::vector<std::string> strings;
  for (size_t r = 0; r < ranks; ++r) {
    strings.push_back(all.substr(r * room_bytes, static_cast<size_t>(lengths[r])));
  }
  return strings;
}

std::string Communicator::broadcast_string(const std::string& value, int root) {
  auto length = static_cast<int64_t>(value.size());
  broadcast({&length, 1, format::DType::I64}, root)->wait();
  std::string text = value;
  text.resize(static_cast<size_t>(length));
  broadcast({text.data(), length, format::DType::U8}, root)->wait();
  return text;
}

bool Communicator::any(bool mine) {
  int64_t flag = mine ? 1 : 0;
  all_reduce_wait({&flag, 1, format::DType::I64}, ReduceOp::Max);
  return flag != 0;
}

}  // namespace longhaul::comm
