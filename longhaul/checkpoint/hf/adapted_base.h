#pragma once

#include <utility>

#include "longhaul/checkpoint/hf/hf_forms.h"

namespace longhaul::checkpoint {

/// A source that changes or adds tensors of another one (adapted_source.h).
class AdaptedBase : public WeightsSource {
 public:
  explicit AdaptedBase(SharedSource base) : base_(std::move(base)) {}

  const SharedSource& base() const { return base_; }
  /// Returns this source upon the same weights in another form.
  virtual SharedSource on(SharedSource base) const = 0;

  const ModelSource& source() const override { return base_->source(); }
  const StoredTensors& stored() const override { return base_->stored(); }
  fs::path config_path() const override { return base_->config_path(); }
  std::vector<CarriedFile> files_to_carry() const override {
    return base_->files_to_carry();
  }
  std::vector<std::string> ignored() const override { return base_->ignored(); }

 protected:
  void set_base(SharedSource base) { base_ = std::move(base); }

 private:
  SharedSource base_;
};

}  // namespace longhaul::checkpoint
