#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

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
/// model by. Written out in plain tensor functions, in fp32 on the host. It reads the
/// network (families/network.h), and shares no layer, no op and no buffer with the model
/// that trains: it takes stored tensors apart, transposes them and rotates by code of its
/// own.
class SourceModel {
 public:
  /// `files` must outlive this; `config` is the source's own. `compute`: dtype of the
  /// model that trains, to which a scale of the embedding may be rounded.
  SourceModel(const ModelConfig& config, const SourceFiles& files, at::ScalarType compute)
      : network_(config.network), files_(files), compute_(compute) {}

  /// Rows of the embedding: ids and positions [T] int64 -> [T, H].
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions) const;
  /// One block of several sequences of T tokens, one after another; tokens see what the
  /// network lets them see: x [B T, H] -> [B T, H]. positions [T] int64: the angles'.
  /// Collective.
  at::Tensor layer(int64_t number, const at::Tensor& x,
                   const at::Tensor& positions) const;
  /// Final norm and output projection: x [R, H] -> [R, V]. Collective.
  at::Tensor logits(const at::Tensor& x) const;

 private:
  at::Tensor norm(const at::Tensor& x, const families::Norm& norm) const;
  /// The bias of a projection.
  at::Tensor bias(const families::Projection& projection) const;
  /// x W^T for every projection, which may lie in one stored tensor, and their biases.
  std::vector<at::Tensor> project(
      const at::Tensor& x, const std::vector<families::Projection>& projections) const;
  at::Tensor project(const at::Tensor& x, const families::Projection& projection) const {
    return project(x, std::vector<families::Projection>{projection}).front();
  }
  at::Tensor evaluate(const families::Attention& attention, const at::Tensor& x,
                      const at::Tensor& positions) const;
  at::Tensor evaluate(const families::FeedForward& layer, const at::Tensor& x) const;
  at::Tensor evaluate(const families::LanguageHead& head, const at::Tensor& x) const;
  at::Tensor evaluate(const families::BertHead& head, const at::Tensor& x) const;

  families::Network network_;
  const SourceFiles& files_;
  at::ScalarType compute_;
};

/// Null for a family that has none.
std::unique_ptr<SourceModel> make_source_model(const ModelConfig& config,
                                               const SourceFiles& files,
                                               at::ScalarType compute);

}  // namespace longhaul::models
