#include "longhaul/data/bert/masking.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

constexpr double kMaskedShare = 0.8;
constexpr double kKeptShareOfRest = 0.5;

int32_t required_id(const tokenizer::Tokenizer& tokenizer, const char* token) {
  const auto id = tokenizer.token_to_id(token);
  if (!id) {
    fail_input("data",
               "the tokenizer has no token {}; examples for BERT need a BERT tokenizer "
               "with [CLS], [SEP], [MASK] and [PAD]",
               token);
  }
  return static_cast<int32_t>(*id);
}

/// The positions of a row that may be masked, by word. Word i has the positions
/// `places[begins[i]]` to `places[begins[i + 1] - 1]`.
struct Words {
  std::vector<int32_t> places;
  std::vector<size_t> begins;

  std::span<const int32_t> word(size_t index) const {
    return std::span(places).subspan(begins[index], begins[index + 1] - begins[index]);
  }
  size_t count() const { return begins.size() - 1; }
};

Words words_of(const BertVocabulary& vocabulary, bool whole,
               const std::vector<int32_t>& row) {
  Words words;
  for (size_t place = 0; place < row.size(); ++place) {
    const auto id = static_cast<size_t>(row[place]);
    if (vocabulary.special[id] != 0) continue;
    const bool joins = whole && vocabulary.continues[id] != 0 && !words.places.empty() &&
                       words.places.back() + 1 == static_cast<int32_t>(place);
    if (!joins) words.begins.push_back(words.places.size());
    words.places.push_back(static_cast<int32_t>(place));
  }
  words.begins.push_back(words.places.size());
  return words;
}

int32_t treated(const BertVocabulary& vocabulary, int32_t id, Draws& draws,
                MaskCounts& counts) {
  if (draws.chance(kMaskedShare)) {
    ++counts.masked;
    return vocabulary.mask;
  }
  if (draws.chance(kKeptShareOfRest)) {
    ++counts.kept;
    return id;
  }
  ++counts.replaced;
  const auto end = static_cast<int64_t>(vocabulary.ordinary.size());
  return vocabulary.ordinary[static_cast<size_t>(draws.below(end))];
}

}  // namespace

BertVocabulary BertVocabulary::of(const tokenizer::Tokenizer& tokenizer,
                                  bool whole_words) {
  BertVocabulary vocabulary;
  const auto size = static_cast<size_t>(tokenizer.vocab_size());
  vocabulary.special.assign(size, 0);
  vocabulary.continues.assign(size, 0);
  const auto special = [&](const char* token) {
    const int32_t id = required_id(tokenizer, token);
    vocabulary.special[static_cast<size_t>(id)] = 1;
    return id;
  };
  vocabulary.cls = special("[CLS]");
  vocabulary.sep = special("[SEP]");
  vocabulary.mask = special("[MASK]");
  vocabulary.pad = special("[PAD]");
  const auto unknown = tokenizer.token_to_id("[UNK]");
  bool any = false;
  for (size_t id = 0; id < size; ++id) {
    const auto token = tokenizer.id_to_token(static_cast<tokenizer::TokenId>(id));
    if (!token || token->empty()) continue;
    const bool inside = token->starts_with("##") && token->size() > 2;
    vocabulary.continues[id] = inside ? 1 : 0;
    any = any || inside;
    if (vocabulary.special[id] == 0 && id != unknown) {
      vocabulary.ordinary.push_back(static_cast<int32_t>(id));
    }
  }
  if (whole_words && !any) {
    throw InputError("data",
                     "no token of the tokenizer begins with ##, so whole words cannot be "
                     "found; use a WordPiece tokenizer, or mask single tokens");
  }
  if (vocabulary.ordinary.empty()) {
    throw InputError("data",
                     "the tokenizer has only special tokens, so nothing can be masked; "
                     "use another tokenizer");
  }
  return vocabulary;
}

std::vector<MaskedToken> mask_tokens(const BertVocabulary& vocabulary,
                                     const MaskOptions& options, Draws& draws,
                                     std::vector<int32_t>& row, MaskCounts& counts) {
  // The published recipe masks a share of all tokens, rounded half to even, at least one.
  const auto wanted = std::min(
      options.max_predictions,
      std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(
                               static_cast<double>(row.size()) * options.share))));
  const Words words = words_of(vocabulary, options.whole_words, row);
  std::vector<uint32_t> order(words.count());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
  std::vector<MaskedToken> chosen;
  // This is a Fisher-Yates shuffle that ends as soon as enough positions are chosen.
  for (size_t i = 0; i < order.size() && static_cast<int64_t>(chosen.size()) < wanted;
       ++i) {
    const auto other =
        i + static_cast<size_t>(draws.below(static_cast<int64_t>(order.size() - i)));
    std::swap(order[i], order[other]);
    const auto word = words.word(order[i]);
    if (static_cast<int64_t>(chosen.size() + word.size()) > wanted) continue;
    for (const int32_t place : word) {
      int32_t& id = row[static_cast<size_t>(place)];
      chosen.push_back({place, id});
      id = treated(vocabulary, id, draws, counts);
    }
  }
  std::ranges::sort(chosen, {}, &MaskedToken::position);
  return chosen;
}

}  // namespace longhaul::data
