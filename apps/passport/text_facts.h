#pragma once

#include "longhaul/base/json.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {

/// Returns a text in which paths below a directory are relative, since the directory of
/// an export has another name while it is written.
std::string without_directory(std::string text, const fs::path& dir);

/// Returns how a tokenizer behaves: the ids of 1,000 hard texts, without the texts that
/// its vocabulary cannot express, and of one text with special tokens around it, and the
/// tokenizer's warnings.
OrderedJson tokenizer_facts(const tokenizer::Tokenizer& tokenizer);

/// Returns what the chat templates beside a tokenizer's file make of a few conversations;
/// null for a conversation that they refuse. Throws InputError if there is no template,
/// or one that this program cannot read.
OrderedJson template_facts(const tokenizer::Tokenizer& tokenizer);

}  // namespace longhaul::apps
