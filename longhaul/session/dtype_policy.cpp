#include "longhaul/session/dtype_policy.h"

namespace longhaul::session {
namespace {

format::DType state_dtype(StateType type) {
  return type == StateType::Fp32 ? format::DType::F32 : format::DType::BF16;
}

}  // namespace

tensor::DTypePolicy make_policy(const PrecisionSection& p) {
  return {p.compute == ComputeType::Fp32 ? format::DType::F32 : format::DType::BF16,
          p.master == MasterType::Fp32 ? format::DType::F32 : format::DType::BF16,
          state_dtype(p.moments), state_dtype(p.gradients), state_dtype(p.reduce)};
}

}  // namespace longhaul::session
