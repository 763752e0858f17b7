#include "longhaul/tensor/parameter.h"

#include "longhaul/base/error.h"

namespace longhaul {

void Parameter::set_slice(TensorSlice slice) {
  slice.check();
  LH_CHECK(!weight_.defined() && slice.name == slice_.name &&
               slice.global_shape == slice_.global_shape,
           "parameter", "{} cannot become {}{}", describe_slice(slice_),
           describe_slice(slice), weight_.defined() ? ": it has storage" : "");
  slice_ = std::move(slice);
}

const at::Tensor& Parameter::weight() const {
  LH_ASSERT(weight_.defined(), "{}: its weight is used while nobody holds it", name());
  return weight_;
}

const at::Tensor& Parameter::grad() const {
  LH_ASSERT(frozen_ || grad_.defined(), "{}: its gradient is used while nobody holds it",
            name());
  return grad_;
}

void Parameter::bind(at::Tensor weight, at::Tensor grad) {
  weight_ = std::move(weight);
  grad_ = std::move(grad);
}

ParameterPtr make_parameter(std::string name, std::vector<int64_t> shape, Init init,
                            std::optional<ShardSplit> split) {
  return std::make_shared<Parameter>(
      ParameterDescription{std::move(name), std::move(shape), init, split});
}

}  // namespace longhaul
