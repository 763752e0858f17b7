#pragma once

#include <string>
#include <vector>

#include "apps/inputs/data_facts.h"

namespace longhaul::apps {

/// Files of chats that are no token store yet, and what becomes of them.
struct ChatQuestion {
  std::vector<std::string> files;  ///< as they were given
  /// The directory of the tokenizer and its chat template, as the command names it.
  fs::path model;
  double seconds = 2.0;  ///< how long the files are read at most
};

/// Renders the chats at the beginning of the files, and finds the facts about the token
/// store that DataFacts::build will make of all of them. Throws InputError, with the
/// place, for a record that the build would refuse, and for a model without a template.
DataFacts chat_facts(const ChatQuestion& question);

}  // namespace longhaul::apps
