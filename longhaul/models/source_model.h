#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "longhaul/families/model_config.h"

namespace longhaul::models {

/// The experts that another evaluation has sent the tokens of one sequence to.
struct KnownChoice {
  at::Tensor experts;     ///< int64 [T, k]; undefined: unknown
  double roundoff = 0.0;  ///< the unit roundoff of that evaluation's router
};

/// Reads a model's files as plain fp32 tensors on the host. All functions are Collective:
/// the ranks share the work, so that a large model costs no rank much.
class SourceFiles {
 public:
  virtual ~SourceFiles() = default;
  /// Returns the vector of this name, [n].
  virtual at::Tensor vector(const std::string& name, int64_t n) const = 0;
  /// Returns rows `ids` [R] int64 of a matrix [rows, width]: [R, width].
  virtual at::Tensor rows(const std::string& name, int64_t rows, int64_t width,
                          const at::Tensor& ids) const = 0;
  /// Returns x W^T for W [out, in] of this name and x [N, in].
  virtual at::Tensor product(const at::Tensor& x, const std::string& name,
                             int64_t out) const = 0;
  /// Returns x W for W [in, out] of this name and x [N, in].
  virtual at::Tensor transposed_product(const at::Tensor& x, const std::string& name,
                                        int64_t out) const = 0;
};

/// Evaluates a model straight from its files. The certificate compares a loaded model
/// with this evaluation. The evaluation consists of plain tensor functions in fp32 on the
/// host. The evaluation reads the network (families/network.h), and shares no layer, no
/// op and no buffer with the model that trains: code of its own takes stored tensors
/// apart, transposes and rotates.
class SourceModel {
 public:
  /// Makes the evaluation of the model that `config` describes. `files` must outlive the
  /// model. `compute` is the dtype of the model that trains, to which a scale of the
  /// embedding may be rounded.
  SourceModel(const ModelConfig& config, const SourceFiles& files, at::ScalarType compute)
      : network_(config.network), files_(files), compute_(compute) {}

  /// Returns the embedding's result for ids and positions [T] int64: [T, H]. Collective.
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions) const;
  /// Returns the result of block `number` for B sequences of T tokens, one after the
  /// other: x [B T, H] -> [B T, H]. A token sees the tokens that the network lets the
  /// token see. The rotations take `positions` [T] int64. Collective.
  /// Where the last sequence's experts are known and rounding may have decided about
  /// them, all sequences take them. Otherwise every token has the experts that are right.
  at::Tensor layer(int64_t number, const at::Tensor& x, const at::Tensor& positions,
                   const KnownChoice& known = {}) const;
  /// Returns the logits of the head: x [R, H] -> [R, V]. Collective.
  at::Tensor logits(const at::Tensor& x) const;

 private:
  at::Tensor norm(const at::Tensor& x, const families::Norm& norm) const;
  /// Returns the bias of a projection.
  at::Tensor bias(const families::Projection& projection) const;
  /// Returns x W^T plus bias for every projection. Several projections may lie in one
  /// stored tensor.
  std::vector<at::Tensor> project(
      const at::Tensor& x, const std::vector<families::Projection>& projections) const;
  at::Tensor project(const at::Tensor& x, const families::Projection& projection) const {
    return project(x, std::vector<families::Projection>{projection}).front();
  }
  at::Tensor evaluate(const families::Attention& attention, const at::Tensor& x,
                      const at::Tensor& positions) const;
  at::Tensor evaluate(const families::FeedForward& layer, const at::Tensor& x) const;
  at::Tensor evaluate(const families::Experts& layer, const at::Tensor& x,
                      const KnownChoice& known) const;
  at::Tensor evaluate(const families::LanguageHead& head, const at::Tensor& x) const;
  at::Tensor evaluate(const families::BertHead& head, const at::Tensor& x) const;

  families::Network network_;
  const SourceFiles& files_;
  at::ScalarType compute_;
};

/// Makes the evaluation for the certificate. Returns null for a family that has none.
std::unique_ptr<SourceModel> make_source_model(const ModelConfig& config,
                                               const SourceFiles& files,
                                               at::ScalarType compute);

}  // namespace longhaul::models
