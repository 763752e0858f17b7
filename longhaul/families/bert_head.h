#pragma once

#include "longhaul/families/network.h"

namespace longhaul::families {

/// Adds BERT's head and the terms of its loss. The head is tied to the table of tokens
/// and sees the masked tokens only.
void describe_head(const Network& network, const BertHead& head, ModelDescription& model);

}  // namespace longhaul::families
