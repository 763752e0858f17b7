#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/checkpoint/state_tensor.h"
#include "longhaul/config/run_config.h"
#include "longhaul/families/description/description.h"
#include "longhaul/layout/context.h"
#include "longhaul/tensor/flat_pieces.h"

namespace longhaul::session {

/// Where this rank's activations lie in those of the whole step, which have the shape
/// [global_size sequences, seq_len, features].
struct ActivationPlace {
  int64_t global_size = 0;
  int64_t micro_size = 0;
  int64_t dp = 1;
  int64_t dp_index = 0;
  /// The positions of a sequence that this rank has.
  std::vector<layout::ContextChunk> chunks;
  int64_t seq_len = 0;  ///< length of the whole sequence
  /// Contiguous parts into which sequence parallelism splits the rank's tokens of a micro
  /// batch, and the part that this rank has.
  int64_t token_parts = 1;
  int64_t token_part = 0;
  /// Whether another rank has the same activations and writes them.
  bool copy = false;
};

/// Appends a range of a parameter (`piece`) as boxes. `part` has the range's elements in
/// host memory, in the dtype that is saved.
void append_piece(const std::string& kind, const tensor::FlatPiece& piece,
                  const at::Tensor& part, std::vector<checkpoint::StateTensor>& out);

/// Collects activations and gradients of one step in global coordinates. They are written
/// as a checkpoint with kinds of its own ("activation", "activation_gradient",
/// "gradient"), so that any two layouts can be compared (checkpoint/examine/compare.h).
/// All calls come from one thread.
class Capture {
 public:
  /// `model` gives the names of each parameter: a gradient may be asked for by any of its
  /// names.
  Capture(CaptureSettings settings, ActivationPlace place, int rank,
          const ModelDescription& model);

  /// Returns whether this step is to be captured.
  bool due(int64_t step) const;
  /// Begins or ends keeping tensors, and forgets the tensors that were kept before.
  void set_active(bool active);
  bool active() const { return active_; }

  /// Keeps a copy of activations [T, features] of a micro batch, as this rank has them.
  void activation(const std::string& kind, const std::string& name, int64_t micro_batch,
                  const at::Tensor& tensor);
  /// Keeps copies of the reduced gradients that no other rank keeps.
  void gradients(const tensor::FlatBuffers& flat);

  /// Returns what was kept; valid until set_active().
  const std::vector<checkpoint::StateTensor>& tensors() const { return tensors_; }

 private:
  bool wanted(const std::string& kind, const std::string& name) const;

  CaptureSettings settings_;
  /// All names of each parameter; empty where nothing is captured.
  std::map<std::string, std::vector<std::string>> names_;
  ActivationPlace place_;
  bool writes_;  ///< whether this rank is one of settings.ranks
  bool active_ = false;
  std::vector<at::Tensor> storage_;
  std::vector<checkpoint::StateTensor> tensors_;
};

}  // namespace longhaul::session
