#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "longhaul/families/model_config.h"

namespace longhaul::models {

/// A model's files, as plain fp32 tensors on the host. Collective, so that a large model
/// costs no rank much.
class SourceFiles {
 public:
  virtual ~SourceFiles() = default;
  /// [n].
  virtual at::Tensor vector(const std::string& name, int64_t n) const = 0;
  /// Rows `ids` [R] int64 of a matrix [rows, width]: [R, width].
  virtual at::Tensor rows(const std::string& name, int64_t rows, int64_t width,
                          const at::Tensor& ids) const = 0;
  /// x W^T, W [out, in] of this name, x [N, in].
  virtual at::Tensor product(const at::Tensor& x, const std::string& name,
                             int64_t out) const = 0;
  /// x W, W [in, out].
  virtual at::Tensor transposed_product(const at::Tensor& x, const std::string& name,
                                        int64_t out) const = 0;
};

/// A model evaluated straight from its files: what the certificate measures a loaded
/// model by. Written out in plain tensor functions, in fp32 on the host, from the names
/// and formulas of the Hugging Face model; it shares no layer, no op, no description and
/// no buffer with the model that trains.
class SourceModel {
 public:
  virtual ~SourceModel() = default;
  /// Rows of the embedding: ids and positions [T] int64 -> [T, H].
  virtual at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions) const = 0;
  /// One block of several sequences of T tokens, one after another; tokens see what
  /// stands before them: x [B T, H] -> [B T, H]. positions [T] int64: the angles'.
  /// Collective.
  virtual at::Tensor layer(int64_t number, const at::Tensor& x,
                           const at::Tensor& positions) const = 0;
  /// Final norm and output projection: x [R, H] -> [R, V]. Collective.
  virtual at::Tensor logits(const at::Tensor& x) const = 0;
};

/// Null for a family that has none. `files` must outlive it; `config` is the source's
/// own.
std::unique_ptr<SourceModel> make_source_model(const ModelConfig& config,
                                               const SourceFiles& files);

}  // namespace longhaul::models
