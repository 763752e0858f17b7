#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/data/input/input_set.h"

namespace longhaul::apps {

/// The beginning of a person's texts, cut into small documents, so that some of them can
/// be held out even where the texts are one file.
struct TextSample {
  std::vector<std::string> documents;  ///< valid UTF-8, none of white space alone
  uint64_t bytes = 0;                  ///< of them together
  bool whole = true;                   ///< nothing of the inputs was left out
  bool repeats = false;                ///< what is held out stands elsewhere as well
  uint64_t stored_bytes = 0;           ///< of all inputs, as they lie on the disk
  std::vector<fs::path> files;         ///< those that it is from, the last one in part
  size_t files_in_all = 0;
};

/// The least text of which a part can be held out and from which something can be
/// learned.
inline constexpr uint64_t kLeastText = 20'000;

/// Reads at most about `most_bytes` of text, however large the inputs are. Inputs are
/// those of `data build`; besides, where no name tells a kind, all are text, so that
/// source code is. InputError names the file: none, empty, no text (with the byte), less
/// than kLeastText in all.
TextSample take_text(data::InputOptions options, uint64_t most_bytes);

/// Where a text is cut.
enum class Cut {
  AtLines,  ///< at line ends, and inside of lines of more than twice a piece
  Unevenly  ///< between any characters, pieces of many sizes: of a text that repeats
            ///< itself few are alike
};

/// The text in documents of about `piece_bytes`, which is 4 at least; no character is
/// cut. Documents of white space alone are left out.
std::vector<std::string> cut_into_documents(std::string_view text, size_t piece_bytes,
                                            Cut cut = Cut::AtLines);

/// The share to be held out: a twentieth, and of short texts as much as a validation
/// needs.
double held_out_share(uint64_t text_bytes);

/// A few words from the middle of the sample, for a model to go on from: the beginning of
/// a line.
std::string prompt_of(const TextSample& sample);

}  // namespace longhaul::apps
