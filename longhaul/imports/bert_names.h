#pragma once

#include <string>

namespace longhaul::imports {

/// Returns the name in Hugging Face's BERT of a tensor that older code (TensorFlow ports,
/// NVIDIA's examples) names otherwise, such as LayerNorm.gamma or dense_act. Returns an
/// empty text for buffers such as position_ids, and other names unchanged.
std::string hf_bert_name(std::string name);

}  // namespace longhaul::imports
