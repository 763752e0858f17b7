#include "longhaul/parallel/context/attention_core.h"

#include "longhaul/parallel/context/gather_attention.h"
#include "longhaul/parallel/context/ring_attention.h"

namespace longhaul::parallel {

nn::AttentionCore make_attention_core(ContextKind kind, comm::Communicator& cp) {
  const auto attend = kind == ContextKind::Ring ? ring_attention : gather_attention;
  return [attend, &cp](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const ops::AttentionMask& mask,
                       bool fused) { return attend(cp, q, k, v, mask, fused); };
}

}  // namespace longhaul::parallel
