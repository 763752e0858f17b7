#include "longhaul/checkpoint/hf/averaged_source.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/hf/hf_export.h"
#include "longhaul/families/differences.h"

namespace longhaul::checkpoint {
namespace {

/// Elements that are in memory at a time, once for each checkpoint and once as their sum.
constexpr int64_t kElementsOfSum = int64_t{1} << 20;

class AveragedSource final : public WeightsSource {
 public:
  explicit AveragedSource(std::vector<SharedSource> checkpoints)
      : checkpoints_(std::move(checkpoints)) {}

  const ModelSource& source() const override { return last().source(); }
  const StoredTensors& stored() const override { return last().stored(); }
  fs::path config_path() const override { return last().config_path(); }
  std::vector<CarriedFile> files_to_carry() const override {
    return last().files_to_carry();
  }
  std::vector<std::string> ignored() const override { return last().ignored(); }
  std::vector<format::TensorSlice> tensors() const override {
    std::vector<format::TensorSlice> list = last().tensors();
    for (format::TensorSlice& tensor : list) {
      if (format::is_float(tensor.dtype)) tensor.dtype = format::DType::F32;
    }
    return list;
  }
  bool as_stored(const std::string& /*name*/) const override { return false; }
  void read(const format::TensorSlice& box, format::DType dst,
            std::span<std::byte> out) const override {
    if (!format::is_float(dst)) return last().read(box, dst, out);
    const int64_t count = box.num_elements();
    const size_t width = format::dtype_size(dst);
    for (int64_t begin = 0; begin < count; begin += kElementsOfSum) {
      const int64_t end = std::min(begin + kElementsOfSum, count);
      const auto elements = static_cast<size_t>(end - begin);
      std::vector<double> sum(elements), one(elements);
      for (const SharedSource& checkpoint : checkpoints_) {
        checkpoint->read_flat_range(box, begin, end, format::DType::F64,
                                    std::as_writable_bytes(std::span(one)));
        for (size_t i = 0; i < elements; ++i) sum[i] += one[i];
      }
      for (double& value : sum) value /= static_cast<double>(checkpoints_.size());
      format::convert_elements(std::as_bytes(std::span(sum)).data(), format::DType::F64,
                               out.data() + static_cast<size_t>(begin) * width, dst,
                               elements);
    }
  }

 private:
  const WeightsSource& last() const { return *checkpoints_.back(); }

  std::vector<SharedSource> checkpoints_;
};

/// Throws InputError if a field of config.json differs that changes the result.
void check_same_result(const WeightsSource& one, const ModelConfig& theirs,
                       const WeightsSource& last, const ModelConfig& ours) {
  for (const ModelDifference& field : differing_fields(ours, theirs)) {
    if (!field.of_result) continue;
    fail_input("average",
               "{} has {} = {}, and {} has {}; only checkpoints of one model have a mean",
               one.source().path.string(), field.field, field.theirs,
               last.source().path.string(), field.ours);
  }
}

}  // namespace

SharedSource averaged(std::vector<SharedSource> checkpoints) {
  const SharedSource last = checkpoints.back();
  const ModelConfig model = load_model_config(last->config_path());
  for (const SharedSource& one : checkpoints) {
    if (holds_adapter(*one)) {
      fail_input("average",
                 "{} holds an adapter, and the product of two means is not the mean of "
                 "the products; export each with --merge instead",
                 one->source().path.string());
    }
    one->check(last->tensors());
    check_same_result(*one, load_model_config(one->config_path()), *last, model);
  }
  return std::make_shared<AveragedSource>(std::move(checkpoints));
}

}  // namespace longhaul::checkpoint
