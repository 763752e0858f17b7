#include "longhaul/tokenizer/pieces/piece_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "longhaul/base/error.h"
#include "longhaul/tokenizer/unicode/unicode.h"

namespace longhaul::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr double kFarthest = 1e5;  // SentencePiece 0.2.1 and later

}  // namespace

UnigramModel::UnigramModel(const UnigramSpec& spec)
    : unknown_(spec.unknown),
      byte_fallback_(spec.byte_fallback),
      single_precision_(spec.single_precision) {
  double least = std::numeric_limits<double>::infinity();
  Vocabulary vocabulary;
  for (size_t i = 0; i < spec.entries.size(); ++i) {
    const UnigramSpec::Entry& entry = spec.entries[i];
    const auto id = static_cast<uint32_t>(i);
    scores_.push_back(entry.score);
    user_defined_.push_back(entry.user_defined);
    vocabulary.emplace_back(entry.token);
    if (!single_precision_ || (entry.matches && !entry.user_defined)) {
      least = std::min(least, entry.score);
    }
    if (!entry.matches || entry.token.empty()) continue;
    trie_.insert(entry.token, id);
    ids_.insert_or_assign(entry.token, id);
  }
  bytes_ = find_byte_tokens(vocabulary);
  if (single_precision_ && least == std::numeric_limits<double>::infinity()) {
    least = std::numeric_limits<float>::max();
  }
  unknown_score_ = least - kUnknownPenalty;
  if (single_precision_) unknown_score_ = static_cast<float>(unknown_score_);
}

double UnigramModel::score_of(uint32_t id, size_t bytes) const {
  if (!user_defined_[id]) return scores_[id];
  // SentencePiece prefers user-defined tokens to all others, and longer ones to shorter
  // ones.
  return static_cast<float>(static_cast<double>(bytes - 1) * 0.1);
}

void UnigramModel::offer(Best& target, double score, size_t start, uint32_t id) const {
  // The sum of two single-precision numbers in double precision, rounded to single
  // precision, equals their sum in single precision.
  if (single_precision_) score = static_cast<float>(score);
  if (target.start != SIZE_MAX && !(score > target.score)) return;
  target = {score, start, id};
}

/// Restarts the sums from zero, as SentencePiece does when a sum in single precision gets
/// too large to tell pieces apart. The position of the restart matters: it changes how
/// sums are rounded, and so which of two paths with nearly equal scores is taken.
void UnigramModel::begin_anew(std::vector<Best>& best, size_t pos, size_t reached) {
  const auto so_far = static_cast<float>(best[pos].score);
  for (size_t end = pos; end <= reached; ++end) {
    if (end != pos && best[end].start == SIZE_MAX) continue;
    best[end].score = static_cast<float>(best[end].score) - so_far;
  }
}

void UnigramModel::find_paths(std::string_view piece, std::vector<Best>& best) const {
  best.assign(piece.size() + 1, Best{});
  size_t reached = 0;
  for (size_t pos = 0; pos < piece.size();) {
    if (single_precision_ && std::abs(best[pos].score) > kFarthest) {
      begin_anew(best, pos, reached);
    }
    const double so_far = best[pos].score;
    const size_t char_bytes = decode_at(piece.data(), pos).bytes;
    bool single = false;
    trie_.each_prefix(piece, pos, [&](size_t end, uint32_t id) {
      offer(best[end], score_of(id, end - pos) + so_far, pos, id);
      reached = std::max(reached, end);
      single = single || end - pos == char_bytes;
    });
    if (!single) {
      if (!unknown_) {
        fail_input("tokenizer",
                   "the vocabulary has no token for the character U+{:04X} and no "
                   "unknown token; use a tokenizer that has the character",
                   decode_at(piece.data(), pos).value);
      }
      offer(best[pos + char_bytes], unknown_score_ + so_far, pos, *unknown_);
      reached = std::max(reached, pos + char_bytes);
    }
    pos += char_bytes;
  }
}

void UnigramModel::add_unknown(std::string_view text, std::vector<uint32_t>& out) const {
  // Unknown characters in a row are looked up in the vocabulary as one text.
  const auto found = ids_.find(std::string(text));
  if (found != ids_.end() && !single_precision_) {
    out.push_back(found->second);
  } else if (!byte_fallback_ || !append_bytes(bytes_, text, out)) {
    out.push_back(*unknown_);
  }
}

void UnigramModel::encode_word(std::string_view word, std::vector<uint32_t>& out) const {
  thread_local std::vector<Best> best;
  thread_local std::vector<size_t> steps;
  find_paths(word, best);
  steps.clear();
  for (size_t end = word.size(); end > 0; end = best[end].start) steps.push_back(end);
  std::reverse(steps.begin(), steps.end());
  for (size_t i = 0; i < steps.size(); ++i) {
    const Best& step = best[steps[i]];
    if (!unknown_ || step.id != *unknown_) {
      out.push_back(step.id);
      continue;
    }
    const size_t first = step.start;
    while (i + 1 < steps.size() && best[steps[i + 1]].id == step.id) ++i;
    add_unknown(word.substr(first, steps[i] - first), out);
  }
}

}  // namespace longhaul::tokenizer
