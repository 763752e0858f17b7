#include "longhaul/session/state_reader.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/json.h"
#include "longhaul/checkpoint/read/finite_values.h"
#include "longhaul/comm/agree.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::session {
namespace {

/// The size of the host memory through which values go from a file to a device other than
/// a CPU.
constexpr int64_t kStagingBytes = int64_t{256} << 20;

/// Looks for weights that are NaN or infinite among the values that were read.
class ValueCheck {
 public:
  void look_at(const checkpoint::ReadRequest& request) {
    if (request.kind != checkpoint::kWeight) return;
    const auto found = format::first_not_finite(request.out, request.dtype);
    if (!found) return;
    const std::string& name = request.slice.name;
    const int64_t index =
        format::whole_index(request.slice, request.begin + static_cast<int64_t>(*found));
    double value = 0.0;
    format::convert_elements(
        request.out.data() + *found * format::dtype_size(request.dtype), request.dtype,
        reinterpret_cast<std::byte*>(&value), format::DType::F64, 1);
    Json here = {name, index,
                 format::describe_element(name, request.slice.global_shape, index),
                 fmt::format("{}", value)};
    if (!found_.is_null() && found_ <= here) return;
    found_ = std::move(here);
    dtype_ = request.dtype;
  }

  /// Throws InputError, the same on all ranks of `node`, where any rank has found a
  /// weight that is NaN or infinite. The error names the first such value by tensor and
  /// index, and by the tensor names of the files where these are known. Collective.
  void settle(const StateFiles& from, comm::Communicator& node) const {
    if (!node.any(!found_.is_null())) return;
    Json first;
    for (const std::string& text : node.gather_strings(json_text(found_))) {
      const Json other = Json::parse(text);
      if (!other.is_null() && (first.is_null() || other < first)) first = other;
    }
    comm::on_all_ranks(node, [&] {
      if (first != found_) return;
      if (from.source) checkpoint::scan_finite(*from.source, first[0], dtype_);
      checkpoint::refuse_value(from.where, first[2], first[3]);
    });
  }

 private:
  Json found_;  ///< name, index, element and value of the first such weight; null: none
  format::DType dtype_ = format::DType::F32;
};

}  // namespace

StateFiles StateFiles::of(const checkpoint::WeightsSource& source) {
  return {source.stored(), source.source().path.string(), &source};
}

StateReader::StateReader(StateFiles files, const tensor::FlatBuffers& flat,
                         std::optional<int64_t> staging)
    : files_(std::move(files)), staged_(staging || !flat.device().is_cpu()) {
  // A batch takes tensors' parts until it has half of the memory. Its last part may have
  // as many bytes again.
  if (staged_) batch_bytes_ = staging.value_or(kStagingBytes) / 2;
}

void StateReader::add(const char* kind, const at::Tensor& tensor,
                      const tensor::Bucket& bucket,
                      const std::function<bool(const std::string&)>& leaves_out) {
  // Where a tensor can only be written whole, its values come in one part.
  const int64_t most = tensor::limits_of(tensor.device()).writes_views
                           ? batch_bytes_ / static_cast<int64_t>(tensor.element_size())
                           : tensor.numel();
  for (const tensor::FlatPiece& piece : tensor::pieces_in(bucket, bucket.owned)) {
    const tensor::Parameter& parameter = *piece.member->parameter;
    if (leaves_out && leaves_out(parameter.name())) continue;
    const auto [first, end] = piece.in_member;
    for (int64_t at = first; at < end;) {
      const int64_t count = std::min(most, end - at);
      const int64_t place = piece.in_bucket - bucket.owned.begin + at - first;
      parts_.push_back({{kind,
                         parameter.slice(),
                         at,
                         at + count,
                         tensor::from_scalar_type(tensor.scalar_type()),
                         {}},
                        tensor.narrow(0, place, count),
                        {}});
      at += count;
    }
  }
}

checkpoint::ReadReport StateReader::run(comm::Communicator& node) {
  checkpoint::ReadReport report;
  ValueCheck check;
  for (size_t next = 0; node.any(next < parts_.size());) {
    const size_t first = next;
    std::vector<checkpoint::ReadRequest> together;
    // Before the ranks read together, all of them learn whether begin_batch has failed on
    // any rank.
    comm::on_all_ranks(node, [&] { next = begin_batch(first, together); });
    report += checkpoint::read_together(files_.stored, together, node);
    comm::on_all_ranks(node, [&] {
      for (size_t i = first; i < next; ++i) {
        check.look_at(parts_[i].request);
        if (staged_) parts_[i].to.copy_(std::exchange(parts_[i].host, {}));
      }
    });
  }
  check.settle(files_, node);
  return report;
}

/// Gives the parts of a batch their memory; reads the parts that the source alone can
/// read, and appends the other parts to `together`. Returns the first part of the next
/// batch.
size_t StateReader::begin_batch(size_t first,
                                std::vector<checkpoint::ReadRequest>& together) {
  int64_t bytes = 0;
  size_t next = first;
  for (; next < parts_.size() && bytes < batch_bytes_; ++next) {
    auto& [request, to, host] = parts_[next];
    host = staged_ ? at::empty(to.sizes(), to.options().device(at::kCPU)) : to;
    request.out = tensor::bytes_of(host);
    bytes += static_cast<int64_t>(host.nbytes());
    if (files_.source == nullptr || files_.source->as_stored(request.slice.name)) {
      together.push_back(request);
    } else {
      files_.source->read_flat_range(request.slice, request.begin, request.end,
                                     request.dtype, request.out);
    }
  }
  return next;
}

checkpoint::ReadReport load_weights(tensor::FlatBuffers& flat,
                                    const checkpoint::WeightsSource& source,
                                    comm::Communicator& node) {
  StateReader reader(StateFiles::of(source), flat);
  for (const tensor::Bucket& bucket : flat.buckets()) {
    reader.add(checkpoint::kWeight, bucket.owned_weights, bucket);
  }
  return reader.run(node);
}

}  // namespace longhaul::session
