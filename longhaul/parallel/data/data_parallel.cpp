#include "longhaul/parallel/data/data_parallel.h"

namespace longhaul::parallel {
namespace {

comm::Buffer buffer_of(const at::Tensor& flat) {
  return {flat.data_ptr(), flat.numel(), from_scalar_type(flat.scalar_type())};
}

at::Tensor part(const at::Tensor& flat, FlatRange range) {
  return flat.narrow(0, range.begin, range.size());
}

}  // namespace

DataParallel::DataParallel(FlatBuffers& flat, comm::Communicator& data, int zero)
    : flat_(flat), data_(data), zero_(zero) {}

FlatRange DataParallel::saved(const Bucket& bucket) const {
  return bucket.shard(data_.rank(), data_.size());
}

FlatRange DataParallel::owned(const Bucket& bucket) const {
  return sharded() ? saved(bucket) : FlatRange{0, bucket.num_elements};
}

void DataParallel::reduce(Bucket& bucket) {
  // The wire dtype may be narrower than the accumulator.
  const auto wire = to_scalar_type(flat_.policy().reduce);
  const at::Tensor sent = bucket.grads.to(wire);
  if (sharded()) {
    const at::Tensor mine = part(sent, owned(bucket));
    data_.reduce_scatter(buffer_of(sent), buffer_of(mine), comm::ReduceOp::Sum)->wait();
    if (!sent.is_same(bucket.grads)) part(bucket.grads, owned(bucket)).copy_(mine);
  } else {
    data_.all_reduce(buffer_of(sent), comm::ReduceOp::Sum)->wait();
    if (!sent.is_same(bucket.grads)) bucket.grads.copy_(sent);
  }
}

void DataParallel::reduce_gradients() {
  if (data_.size() == 1) return;
  for (Bucket& bucket : flat_.buckets()) {
    if (bucket.grads.defined()) reduce(bucket);
  }
}

void DataParallel::share_weights() {
  if (data_.size() == 1 || !sharded()) return;
  for (Bucket& bucket : flat_.buckets()) {
    data_
        .all_gather(buffer_of(part(bucket.weights, owned(bucket))),
                    buffer_of(bucket.weights))
        ->wait();
  }
}

}  // namespace longhaul::parallel
