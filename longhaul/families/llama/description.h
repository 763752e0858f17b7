#pragma once

#include "longhaul/families/llama/llama.h"

namespace longhaul {

ModelDescription describe_llama(const LlamaSettings& settings, int64_t vocab_size);

}  // namespace longhaul
