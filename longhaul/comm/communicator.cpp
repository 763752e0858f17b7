#include "longhaul/comm/communicator.h"

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/comm/options.h"

namespace longhaul::comm {

namespace {

[[noreturn]] void fail_absent(const std::string& group, const char* what) {
  throw Error(ErrorKind::Internal, "comm", fmt::format("'{}' has no {}", group, what));
}

}  // namespace

const CommCounts& Communicator::counts() const { fail_absent(name(), "counts"); }

const CommOptions& Communicator::limits() const {
  static const CommOptions kDefault;
  return kDefault;
}

Ledger& Communicator::ledger() { fail_absent(name(), "ledger"); }

std::vector<std::string> Communicator::gather_strings(const std::string& mine) {
  const auto ranks = static_cast<size_t>(size());
  const auto length = static_cast<int64_t>(mine.size());
  std::vector<int64_t> lengths(ranks);
  all_gather({&length, 1, DType::I64}, {lengths.data(), size(), DType::I64})->wait();

  // Equal parts: every string takes the room of the longest.
  const int64_t room = *std::max_element(lengths.begin(), lengths.end());
  const auto room_bytes = static_cast<size_t>(room);
  std::string padded = mine;
  padded.resize(room_bytes);
  std::string all(room_bytes * ranks, '\0');
  all_gather({padded.data(), room, DType::U8}, {all.data(), room * size(), DType::U8})
      ->wait();
  std::vector<std::string> strings;
  for (size_t r = 0; r < ranks; ++r) {
    strings.push_back(all.substr(r * room_bytes, static_cast<size_t>(lengths[r])));
  }
  return strings;
}

std::string Communicator::broadcast_string(const std::string& value, int root) {
  auto length = static_cast<int64_t>(value.size());
  broadcast({&length, 1, DType::I64}, root)->wait();
  std::string text = value;
  text.resize(static_cast<size_t>(length));
  broadcast({text.data(), length, DType::U8}, root)->wait();
  return text;
}

bool Communicator::any(bool mine) {
  int64_t flag = mine ? 1 : 0;
  all_reduce_wait({&flag, 1, DType::I64}, ReduceOp::Max);
  return flag != 0;
}

}  // namespace longhaul::comm
