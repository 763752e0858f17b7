#pragma once

#include <string_view>
#include <vector>

namespace longhaul::data {

/// How a document becomes sentences.
enum class SentenceRule {
  /// One per line, blank lines part documents: the form that BERT's recipes feed on.
  Lines,
  /// A line's end ends a sentence, a blank line nothing more; inside a line a sentence
  /// ends
  /// after . ! ? or an ellipsis, closing quotes and brackets behind it included, where a
  /// blank and no lower-case ASCII letter follow; not after a single capital ("J.
  /// Smith"),
  /// a number's point or a common English abbreviation ("Dr."). After the full stops of
  /// Chinese and Japanese no blank is needed.
  Punctuation,
};

/// The documents of a text, each a list of its sentences: views into `text`, none empty,
/// without blanks around. Text without any is no document.
std::vector<std::vector<std::string_view>> split_documents(std::string_view text,
                                                           SentenceRule rule);

}  // namespace longhaul::data
