#pragma once

#include <string_view>
#include <vector>

namespace longhaul::data {

/// How a document becomes sentences.
enum class SentenceRule {
  /// A line is a sentence, and blank lines separate documents, as in BERT's recipes.
  Lines,
  /// The end of a line ends a sentence, and a blank line does not end a document. Inside
  /// a line a sentence ends after . ! ? or an ellipsis, with the closing quotes and
  /// brackets after it, where a blank and no lower-case ASCII letter follow. A sentence
  /// does not end after a single capital ("J. Smith"), a number's point or a common
  /// English abbreviation ("Dr."). After the full stops of Chinese and Japanese no blank
  /// is needed.
  Punctuation,
};

/// Splits a text into documents, which are lists of sentences. Sentences are views into
/// `text` without surrounding blanks, and no sentence is empty. A text without a sentence
/// has no document.
std::vector<std::vector<std::string_view>> split_documents(std::string_view text,
                                                           SentenceRule rule);

}  // namespace longhaul::data
