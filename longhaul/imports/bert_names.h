#pragma once

#include <string>

namespace longhaul::imports {

/// The name that Hugging Face's BERT gives a tensor which older code (TensorFlow ports,
/// NVIDIA's examples) names otherwise: LayerNorm.gamma, dense_act. Empty for buffers that
/// are no parameters (position_ids). Other names stay.
std::string hf_bert_name(std::string name);

}  // namespace longhaul::imports
