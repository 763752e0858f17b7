#pragma once

#include "longhaul/checkpoint/foreign/model.h"
#include "longhaul/checkpoint/weights_source.h"

namespace longhaul::checkpoint {

/// The weights of a foreign checkpoint, for export_hf. The model must outlive it.
class ForeignSource final : public WeightsSource {
 public:
  explicit ForeignSource(const ForeignModel& model);

  const ModelSource& source() const override { return source_; }
  std::vector<TensorSlice> tensors() const override;
  void read(const TensorSlice& box, DType dst, std::span<std::byte> out) const override;
  /// Error (Internal): ranks do not read foreign checkpoints together.
  const StoredTensors& stored() const override;
  fs::path config_path() const override { return model_.config.path; }
  std::vector<CarriedFile> files_to_carry() const override;
  std::vector<std::string> ignored() const override { return model_.ignored; }

 private:
  const ForeignModel& model_;
  ModelSource source_;
};

}  // namespace longhaul::checkpoint
