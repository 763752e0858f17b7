#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/checkpoint/state_tensor.h"
#include "longhaul/config/run_config.h"
#include "longhaul/families/description.h"
#include "longhaul/layout/context.h"
#include "longhaul/tensor/flat_pieces.h"

namespace longhaul::train {

/// Where this rank's activations lie in those of the whole step: [global_size sequences,
/// seq_len, features].
struct ActivationPlace {
  int64_t global_size = 0;
  int64_t micro_size = 0;
  int64_t dp = 1;
  int64_t dp_index = 0;
  /// Its positions of a sequence.
  std::vector<ContextChunk> chunks;
  int64_t seq_len = 0;  ///< of the whole sequence
  /// Contiguous parts into which the tokens of a micro batch are split beyond that.
  int64_t token_parts = 1;
  int64_t token_part = 0;
  /// Another rank has the same activations and writes them.
  bool copy = false;
};

/// Appends the boxes of a parameter's piece of a bucket, whose elements are in `part`: on
/// the host, in the dtype that is saved.
void append_piece(const std::string& kind, const FlatPiece& piece, const at::Tensor& part,
                  std::vector<checkpoint::StateTensor>& out);

/// Collects activations and gradients of one step in global coordinates, to be written as
/// a checkpoint of its own kinds: "activation", "activation_gradient", "gradient". So any
/// two layouts can be compared (checkpoint/compare.h). One thread.
class Capture {
 public:
  /// `model`: gradients are wanted by any name of their parameter.
  Capture(CaptureSettings settings, ActivationPlace place, int rank,
          const ModelDescription& model);

  /// Is this step to be captured?
  bool due(int64_t step) const;
  /// From now on tensors are kept, or passed over.
  void set_active(bool active);
  bool active() const { return active_; }

  /// [T, features] of a micro batch, as this rank has them; copied.
  void activation(const std::string& kind, const std::string& name, int64_t micro_batch,
                  const at::Tensor& tensor);
  /// What this rank alone counts of the reduced gradients; copied.
  void gradients(const FlatBuffers& flat);

  /// What was kept. Valid until set_active.
  const std::vector<checkpoint::StateTensor>& tensors() const { return tensors_; }

 private:
  bool wanted(const std::string& kind, const std::string& name) const;

  CaptureSettings settings_;
  /// Of each parameter; nothing where nothing is captured.
  std::map<std::string, std::vector<std::string>> names_;
  ActivationPlace place_;
  bool writes_;  ///< this rank is one of settings.ranks
  bool active_ = false;
  std::vector<at::Tensor> storage_;
  std::vector<checkpoint::StateTensor> tensors_;
};

}  // namespace longhaul::train
