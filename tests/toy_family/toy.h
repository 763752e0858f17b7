#pragma once

#include "longhaul/families/family.h"
#include "longhaul/models/registry.h"

namespace longhaul::toy {

/// A family by the list of docs/adding.md, which the program does not know: rows of
/// embeddings that gated feed-forwards change, each token by itself. Blocks hand on the
/// embeddings as well, which the head adds, and the size of hidden states is a term of
/// the loss.
const families::Family& toy_family();
const models::ModelFamily& toy_model_family();

}  // namespace longhaul::toy
