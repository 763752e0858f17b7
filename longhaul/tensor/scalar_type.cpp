#include "longhaul/tensor/scalar_type.h"

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::tensor {
namespace {

constexpr std::pair<format::DType, at::ScalarType> kTypes[] = {
    {format::DType::F32, at::kFloat}, {format::DType::BF16, at::kBFloat16},
    {format::DType::F16, at::kHalf},  {format::DType::F64, at::kDouble},
    {format::DType::I64, at::kLong},  {format::DType::I32, at::kInt},
    {format::DType::I16, at::kShort}, {format::DType::I8, at::kChar},
    {format::DType::U8, at::kByte},   {format::DType::Bool, at::kBool}};

}  // namespace

at::ScalarType to_scalar_type(format::DType dtype) {
  const auto* found =
      std::ranges::find(kTypes, dtype, &std::pair<format::DType, at::ScalarType>::first);
  LH_ASSERT(found != std::end(kTypes), "{} has no tensor form",
            format::dtype_name(dtype));
  return found->second;
}

format::DType from_scalar_type(at::ScalarType type) {
  const auto* found =
      std::ranges::find(kTypes, type, &std::pair<format::DType, at::ScalarType>::second);
  LH_ASSERT(found != std::end(kTypes), "scalar type {} has no file form",
            static_cast<int>(type));
  return found->first;
}

}  // namespace longhaul::tensor
