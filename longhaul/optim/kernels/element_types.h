#pragma once

// The element types of a range as template arguments, for the loops of every device.
// uint16_t is bf16. All functions have internal linkage, since files of several
// instruction sets include this header.

#include <type_traits>

#include "longhaul/optim/kernels/update.h"

namespace longhaul::optim {
namespace {

/// Stands for the weight's type where the weight is the master.
struct NoWeight {};

/// Calls `act` with a null pointer of the element type.
template <typename Act>
void with_type(format::DType dtype, const Act& act) {
  if (dtype == format::DType::F32) {
    act(static_cast<float*>(nullptr));
  } else {
    act(static_cast<uint16_t*>(nullptr));
  }
}

/// Calls act(master): masters are bf16 where they are rounded at random.
template <typename Act>
void with_master(const AdamWRange& r, const Act& act) {
  if (r.rounding != nullptr) {
    act(static_cast<uint16_t*>(r.master));
  } else {
    act(static_cast<float*>(r.master));
  }
}

/// Calls act(master, weight).
template <typename Act>
void with_weight(const AdamWRange& r, const Act& act) {
  with_master(r, [&]<typename P>(P* master) {
    if (r.weight == r.master) {
      act(master, static_cast<NoWeight*>(nullptr));
    } else if constexpr (std::is_same_v<P, float>) {
      with_type(r.weight_dtype,
                [&]<typename W>(W*) { act(master, static_cast<W*>(r.weight)); });
    }
  });
}

}  // namespace
}  // namespace longhaul::optim
