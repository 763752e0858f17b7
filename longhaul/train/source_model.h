#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "longhaul/checkpoint/weights_source.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/families/llama/llama.h"

namespace longhaul::train {

/// A Llama evaluated straight from its files: what the certificate measures a loaded
/// model by. Written out in plain tensor functions, in fp32 on the host, from the names
/// and formulas of the Hugging Face model; it shares no layer, no op, no sharding table
/// and no buffer with the model that trains. A matrix is read as blocks of rows, of which
/// one is in memory at a time; each rank of `world` reads and multiplies an equal share
/// of the rows, so a large model costs no rank much.
class SourceModel {
 public:
  /// All three must outlive this. `config` is the source's own.
  SourceModel(const checkpoint::WeightsSource& source, const ModelConfig& config,
              comm::Communicator& world);

  /// Can this family be evaluated?
  static bool knows(const ModelConfig& config);

  /// Rows of the embedding: ids [T] int64 -> [T, H].
  at::Tensor embed(const at::Tensor& ids) const;
  /// One decoder layer of several sequences of T tokens, one after another; tokens see
  /// what stands before them: x [B T, H] -> [B T, H]. positions [T] int64: the angles'.
  /// Collective.
  at::Tensor layer(int64_t number, const at::Tensor& x,
                   const at::Tensor& positions) const;
  /// Final norm and output projection: x [R, H] -> [R, V]. Collective.
  at::Tensor logits(const at::Tensor& x) const;

 private:
  at::Tensor vector(const std::string& name) const;
  at::Tensor product(const at::Tensor& x, const std::string& name, int64_t out) const;
  at::Tensor norm(const at::Tensor& x, const std::string& name) const;
  at::Tensor attention(const at::Tensor& x, const std::string& layer,
                       const at::Tensor& positions) const;
  at::Tensor rotate(const at::Tensor& x, const at::Tensor& positions) const;
  at::Tensor frequencies() const;

  const checkpoint::WeightsSource& source_;
  const LlamaSettings& config_;
  int64_t vocab_size_;
  comm::Communicator& world_;
};

}  // namespace longhaul::train
