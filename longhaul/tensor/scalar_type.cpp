#include "longhaul/tensor/scalar_type.h"

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul {
namespace {

constexpr std::pair<DType, at::ScalarType> kTypes[] = {
    {DType::F32, at::kFloat},  {DType::BF16, at::kBFloat16}, {DType::F16, at::kHalf},
    {DType::F64, at::kDouble}, {DType::I64, at::kLong},      {DType::I32, at::kInt},
    {DType::I16, at::kShort},  {DType::I8, at::kChar},       {DType::U8, at::kByte},
    {DType::Bool, at::kBool}};

}  // namespace

at::ScalarType to_scalar_type(DType dtype) {
  const auto* found =
      std::ranges::find(kTypes, dtype, &std::pair<DType, at::ScalarType>::first);
  LH_ASSERT(found != std::end(kTypes), "{} has no tensor form", dtype_name(dtype));
  return found->second;
}

DType from_scalar_type(at::ScalarType type) {
  const auto* found =
      std::ranges::find(kTypes, type, &std::pair<DType, at::ScalarType>::second);
  LH_ASSERT(found != std::end(kTypes), "scalar type {} has no file form",
            static_cast<int>(type));
  return found->first;
}

}  // namespace longhaul
