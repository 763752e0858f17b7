#pragma once

#include <string_view>
#include <vector>

namespace longhaul::data {

/// How a document becomes sentences.
enum class SentenceRule {
  /// A line is a sentence, and blank lines part documents: the form of BERT's recipes.
  Lines,
  /// The end of a line ends a sentence, and a blank line ends no more than that. Inside a
  /// line a sentence ends after . ! ? or an ellipsis, with the closing quotes and
  /// brackets
  /// behind it, where a blank and no lower-case ASCII letter follow. It does not end
  /// after
  /// a single capital ("J. Smith"), a number's point or a common English abbreviation
  /// ("Dr."). After the full stops of Chinese and Japanese no blank is needed.
  Punctuation,
};

/// Splits a text into documents, each a list of its sentences. Sentences are views into
/// `text`; none is empty, and blanks around are removed. A text without a sentence has no
/// document.
std::vector<std::vector<std::string_view>> split_documents(std::string_view text,
                                                           SentenceRule rule);

}  // namespace longhaul::data
