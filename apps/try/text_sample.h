#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/data/input/input_set.h"

namespace longhaul::apps {

/// The beginning of a person's texts, cut into small documents, so that some of them can
/// be held out even if the texts are one file.
struct TextSample {
  std::vector<std::string> documents;  ///< valid UTF-8, none of white space alone
  uint64_t bytes = 0;                  ///< bytes of all documents together
  bool whole = true;                   ///< the documents are all text of the inputs
  bool repeats = false;                ///< held-out text stands in the rest as well
  uint64_t stored_bytes = 0;           ///< size of all inputs on the disk
  std::vector<fs::path> files;  ///< the files that were read, perhaps the last in part
  size_t files_in_all = 0;
};

/// A text of fewer bytes is too short to hold out a part of it and to learn from the
/// rest.
inline constexpr uint64_t kLeastText = 20'000;

/// Reads at most about `most_bytes` of text, however large the inputs are. Inputs are
/// those of `data build`. If no file's name tells its kind, all files count as text, such
/// as source code. Throws InputError with the file's name if a file is missing, if it
/// holds no text (with the offset of the byte), and if all files together have less than
/// kLeastText.
TextSample take_text(data::InputOptions options, uint64_t most_bytes);

/// The places at which a text is cut into documents.
enum class Cut {
  AtLines,  ///< at line ends, and inside lines that are longer than two pieces
  Unevenly  ///< between any characters, in many sizes, so that few pieces of a text that
            ///< repeats itself are equal
};

/// Cuts the text into documents of about `piece_bytes`, which is at least 4, and cuts no
/// character. Documents of white space alone are left out.
std::vector<std::string> cut_into_documents(std::string_view text, size_t piece_bytes,
                                            Cut cut = Cut::AtLines);

/// Returns the share of a text to hold out: a twentieth, and more of a short text, so
/// that a validation has enough.
double held_out_share(uint64_t text_bytes);

/// Returns a prompt for the trained model: the first words of a line in the middle of the
/// sample.
std::string prompt_of(const TextSample& sample);

}  // namespace longhaul::apps
