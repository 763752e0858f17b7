#include "longhaul/data/order/permutation.h"

#include "longhaul/base/error.h"
#include "longhaul/base/random.h"

namespace longhaul::data {
namespace {

// Four rounds make a Feistel network indistinguishable from random for an outsider (Luby
// and Rackoff); small ranges mix visibly better with more rounds.
constexpr int kRounds = 8;

}  // namespace

Permutation::Permutation(int64_t size, uint64_t key)
    : size_(size), key_(key), half_bits_(1) {
  LH_CHECK(size >= 1 && size <= (int64_t{1} << 62), "data", "permutation of {} elements",
           size);
  while ((uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(size)) ++half_bits_;
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t next = left ^ (philox(key_, right, round)[0] & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

uint64_t Permutation::decrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = kRounds; round-- > 0;) {
    const uint64_t before = right ^ (philox(key_, left, round)[0] & mask);
    right = left;
    left = before;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator()(int64_t index) const {
  LH_CHECK(index >= 0 && index < size_, "data", "index {} of a permutation of {}", index,
           size_);
  auto value = static_cast<uint64_t>(index);
  do {
    value = encrypt(value);
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

int64_t Permutation::index_of(int64_t element) const {
  LH_CHECK(element >= 0 && element < size_, "data", "element {} of a permutation of {}",
           element, size_);
  auto value = static_cast<uint64_t>(element);
  do {
    value = decrypt(value);
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

}  // namespace longhaul::data
