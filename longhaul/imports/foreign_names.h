#pragma once

#include <string>

namespace longhaul::imports {

/// Returns the name in Hugging Face's BERT of a tensor that older code (TensorFlow ports,
/// NVIDIA's examples) names otherwise, such as LayerNorm.gamma or dense_act. Returns an
/// empty text for buffers such as position_ids, and other names unchanged.
std::string hf_bert_name(std::string name);

/// Returns the name in neuronx-distributed's Llama of a tensor that its models of
/// Megatron's style call `language_model...`. Returns other names unchanged. The tensors
/// query_key_value and key_value keep their last parts, since the order of their rows is
/// not that of NxD's Llama.
std::string nxd_llama_name(std::string name);

}  // namespace longhaul::imports
