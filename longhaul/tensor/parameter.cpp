#include "longhaul/tensor/parameter.h"

#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::tensor {

void Parameter::set_slice(format::TensorSlice slice) {
  slice.check();
  LH_CHECK(!weight_.defined() && slice.name == slice_.name &&
               slice.global_shape == slice_.global_shape,
           "parameter", "{} cannot become {}{}", format::describe_slice(slice_),
           format::describe_slice(slice), weight_.defined() ? ": it has storage" : "");
  slice_ = std::move(slice);
}

const at::Tensor& Parameter::weight() const {
  LH_ASSERT(weight_.defined(), "{}: its weight is used while nobody holds it", name());
  return weight_;
}

const at::Tensor& Parameter::grad() const {
  const bool unset = grad_unset_;
  const at::Tensor& grad = grad_to_write();
  if (unset && !frozen_) at::Tensor(grad).zero_();
  return grad;
}

const at::Tensor& Parameter::grad_to_write() const {
  LH_ASSERT(frozen_ || grad_.defined(), "{}: its gradient is used while nobody holds it",
            name());
  grad_unset_ = false;
  return grad_;
}

void Parameter::bind(at::Tensor weight, at::Tensor grad) {
  weight_ = std::move(weight);
  grad_ = std::move(grad);
}

ParameterPtr make_parameter(std::string name, std::vector<int64_t> shape, Init init,
                            std::optional<format::ShardSplit> split) {
  return std::make_shared<Parameter>(
      ParameterDescription{std::move(name), std::move(shape), init, split});
}

}  // namespace longhaul::tensor
