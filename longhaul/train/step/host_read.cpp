#include "longhaul/train/step/host_read.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "longhaul/base/error.h"
#include "longhaul/device/device.h"

namespace longhaul::train {

std::vector<std::vector<double>> read_on_host(const Layout& layout,
                                              const std::vector<at::Tensor>& tensors) {
  at::Tensor all = at::cat(tensors);
  LH_ASSERT(all.scalar_type() == at::kDouble, "values in {}",
            c10::toString(all.scalar_type()));
  if (!all.is_cpu()) {
    const at::Tensor host =
        at::empty(all.sizes(), at::TensorOptions(at::kDouble).pinned_memory(true));
    host.copy_(all, /*non_blocking=*/true);
    device::wait(device::mark(all.device()), [&] { layout.look(); });
    all = host;
  }
  const double* from = all.const_data_ptr<double>();
  std::vector<std::vector<double>> values;
  for (const at::Tensor& tensor : tensors) {
    values.emplace_back(from, from + tensor.numel());
    from += tensor.numel();
  }
  return values;
}

}  // namespace longhaul::train
