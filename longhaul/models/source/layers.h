#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/families/network.h"

namespace longhaul::models {

/// The experts that another evaluation has sent the tokens of one sequence to.
struct KnownChoice {
  at::Tensor experts;     ///< int64 [T, k]; undefined: unknown
  double roundoff = 0.0;  ///< the unit roundoff of that evaluation's router
};

/// Reads a model's files as plain fp32 tensors on the host. All functions are Collective:
/// the ranks share the work, so that no rank reads and multiplies all of a large model.
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

// The evaluation in source_model.h consists of these layers, which are plain tensor
// functions in fp32, by the formulas of transformers. Each kind of layer is in the file
// of its name. Shapes: B sequences of T tokens, N = B T, H hidden, D head dim. All
// functions that read files are Collective.

namespace source {

/// Returns the norm of x over its last dim.
at::Tensor evaluate(const SourceFiles& files, const families::Norm& norm,
                    const at::Tensor& x);
/// Returns x W^T plus bias for every layer. Several layers may lie in one stored tensor.
std::vector<at::Tensor> evaluate_all(const SourceFiles& files,
                                     const std::vector<families::Linear>& layers,
                                     const at::Tensor& x);
inline at::Tensor evaluate(const SourceFiles& files, const families::Linear& layer,
                           const at::Tensor& x) {
  return evaluate_all(files, {layer}, x).front();
}
/// Maps x [N, H] to [N, H]; `positions` are [T] int64.
at::Tensor evaluate(const SourceFiles& files, const families::Attention& attention,
                    const at::Tensor& x, const at::Tensor& positions);
/// Maps x [N, H] to [N, H].
at::Tensor evaluate(const SourceFiles& files, const families::FeedForward& layer,
                    const at::Tensor& x);
/// Maps x [N, H] to [N, H]. See SourceModel::layer for `known`.
at::Tensor evaluate(const SourceFiles& files, const families::Experts& layer,
                    const at::Tensor& x, const KnownChoice& known);
/// Returns [T, H] for ids and positions [T] int64. The embedding's scale is rounded to
/// `compute` if the embedding says so (rounds_scale).
at::Tensor evaluate(const SourceFiles& files, const families::Embedding& embedding,
                    int64_t width, at::ScalarType compute, const at::Tensor& ids,
                    const at::Tensor& positions);
/// Returns logits for rows x [R, H]: [R, V].
at::Tensor evaluate(const SourceFiles& files, const families::LanguageHead& head,
                    const at::Tensor& x, const families::Table& tokens);
at::Tensor evaluate(const SourceFiles& files, const families::BertHead& head,
                    const at::Tensor& x, const families::Table& tokens);

/// Rotates the first features of each head by the angles of positions [T] int64: x [B,
/// heads, T, D] -> [B, heads, T, D] (modeling_rope_utils.py).
at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions,
                   const families::Rotation& rotation);
/// Applies the activation element by element.
at::Tensor activated(const at::Tensor& x, Activation activation);

}  // namespace source
}  // namespace longhaul::models
