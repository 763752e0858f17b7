#pragma once

#include "longhaul/families/network.h"

namespace longhaul::families {

/// Adds BERT's head and the terms of its loss to the description. The head is tied to the
/// table of tokens and is computed for the masked tokens only.
void describe_head(const Network& network, const BertHead& head, ModelDescription& model);

}  // namespace longhaul::families
