#pragma once

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/imports/foreign_model.h"

namespace longhaul::imports {

/// The weights of a foreign checkpoint, or another of its sets of tensors, in the role of
/// the files of a Hugging Face directory. Both references must outlive this object.
class ForeignSource final : public checkpoint::WeightsSource {
 public:
  explicit ForeignSource(const ForeignModel& model)
      : ForeignSource(model, model.weights) {}
  ForeignSource(const ForeignModel& model, const std::map<std::string, Mosaic>& tensors);

  const checkpoint::ModelSource& source() const override { return source_; }
  std::vector<format::TensorSlice> tensors() const override;
  void read(const format::TensorSlice& box, format::DType dst,
            std::span<std::byte> out) const override;
  /// Throws Error (Internal). Stored tensors serve ranks that read a checkpoint together,
  /// and each rank reads another system's checkpoint by itself.
  const checkpoint::StoredTensors& stored() const override;
  fs::path config_path() const override { return model_.config.path; }
  std::vector<checkpoint::CarriedFile> files_to_carry() const override;
  std::vector<std::string> ignored() const override { return model_.ignored; }

 private:
  const ForeignModel& model_;
  const std::map<std::string, Mosaic>& tensors_;
  checkpoint::ModelSource source_;
};

}  // namespace longhaul::imports
