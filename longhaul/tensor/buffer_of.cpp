#include "longhaul/tensor/buffer_of.h"

#include "longhaul/base/error.h"
#include "longhaul/tensor/scalar_type.h"

namespace longhaul::tensor {

comm::Buffer buffer_of(const at::Tensor& x) {
  LH_CHECK(x.is_contiguous(), "comm", "a tensor that is sent must be contiguous");
  return {x.data_ptr(), x.numel(), from_scalar_type(x.scalar_type()),
          x.unsafeGetTensorImpl()};
}

at::Tensor tensor_of(const comm::ConstBuffer& buffer) {
  if (buffer.tensor == nullptr) return {};
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(
      static_cast<c10::TensorImpl*>(buffer.tensor)));
}

}  // namespace longhaul::tensor
