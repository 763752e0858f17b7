#pragma once

#include "longhaul/base/json.h"
#include "longhaul/session/session.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {

/// The longest prompt of a passport, in tokens.
inline constexpr int64_t kLongestPrompt = 256;

/// Returns what a model says of 32 prompts of 2 to kLongestPrompt tokens, as far as the
/// model has positions. Half of them are hard texts, if there is a tokenizer (which may
/// be null), the others random ids. For each prompt there are its ids and, for each id
/// but the first, the natural log-probability behind the ids before it, the id that is
/// most likely there, and the log-probability of that id. `session` has room for the
/// longest prompt. The result is the same on all ranks. Collective.
Json logit_facts(const session::Session& session, const tokenizer::Tokenizer* tokenizer);

}  // namespace longhaul::apps
