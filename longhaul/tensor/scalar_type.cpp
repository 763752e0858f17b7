#include "longhaul/tensor/scalar_type.h"

#include "longhaul/base/error.h"

namespace longhaul {

at::ScalarType to_scalar_type(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return at::kFloat;
    case DType::BF16:
      return at::kBFloat16;
    case DType::F16:
      return at::kHalf;
    case DType::F64:
      return at::kDouble;
    case DType::I64:
      return at::kLong;
    case DType::I32:
      return at::kInt;
    case DType::I16:
      return at::kShort;
    case DType::I8:
      return at::kChar;
    case DType::U8:
      return at::kByte;
    case DType::Bool:
      return at::kBool;
    default:
      break;
  }
  LH_ASSERT(false, "{} has no tensor form", dtype_name(dtype));
}

DType from_scalar_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::F32;
    case at::kBFloat16:
      return DType::BF16;
    case at::kHalf:
      return DType::F16;
    case at::kDouble:
      return DType::F64;
    case at::kLong:
      return DType::I64;
    case at::kInt:
      return DType::I32;
    case at::kShort:
      return DType::I16;
    case at::kChar:
      return DType::I8;
    case at::kByte:
      return DType::U8;
    case at::kBool:
      return DType::Bool;
    default:
      break;
  }
  LH_ASSERT(false, "scalar type {} has no file form", static_cast<int>(type));
}

}  // namespace longhaul
