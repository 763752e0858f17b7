#include "longhaul/data/bert/example_maker.h"

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

constexpr double kRandomNextShare = 0.5;
/// The smallest target length of an example: one token for each text.
constexpr int64_t kShortestPair = 2;

/// Calls visit(name, field) for each field of the counts.
template <typename Counts, typename Visit>
void visit_counts(Counts& counts, Visit&& visit) {
  visit("examples", counts.examples);
  visit("random_next", counts.random_next);
  visit("tokens", counts.tokens);
  visit("cut_tokens", counts.cut_tokens);
  visit("short_examples", counts.short_examples);
  visit("masked", counts.masks.masked);
  visit("kept", counts.masks.kept);
  visit("replaced", counts.masks.replaced);
}

template <typename Value>
void append_rows(const std::vector<Value>& values, int64_t width,
                 const std::vector<int64_t>& order, std::string& out) {
  const auto bytes = static_cast<size_t>(width) * sizeof(Value);
  for (const int64_t row : order) {
    out.append(
        reinterpret_cast<const char*>(values.data()) + static_cast<size_t>(row) * bytes,
        bytes);
  }
}

}  // namespace

void ExampleCounts::add(const ExampleCounts& other) {
  std::vector<int64_t> values;
  visit_counts(other,
               [&](const char*, const int64_t& value) { values.push_back(value); });
  size_t next = 0;
  visit_counts(*this, [&](const char*, int64_t& value) { value += values[next++]; });
}

Json ExampleCounts::to_json() const {
  Json json = Json::object();
  visit_counts(*this,
               [&](const char* name, const int64_t& value) { json[name] = value; });
  return json;
}

ExampleCounts ExampleCounts::from_json(const JsonFields& fields) {
  ExampleCounts counts;
  visit_counts(counts,
               [&](const char* name, int64_t& value) { value = fields.count(name); });
  return counts;
}

ExampleRows::ExampleRows(int64_t seq_len, int64_t predictions)
    : seq_len_(seq_len), predictions_(predictions) {}

void ExampleRows::add(const std::vector<int32_t>& tokens, int64_t first_tokens,
                      int32_t pad, const std::vector<MaskedToken>& masked,
                      bool random_next) {
  const auto length = static_cast<int64_t>(tokens.size());
  LH_CHECK(length <= seq_len_ && static_cast<int64_t>(masked.size()) <= predictions_,
           "data", "an example of {} tokens and {} predictions for rows of {} and {}",
           length, masked.size(), seq_len_, predictions_);
  ids_.insert(ids_.end(), tokens.begin(), tokens.end());
  mask_.insert(mask_.end(), tokens.size(), 1);
  segments_.insert(segments_.end(), static_cast<size_t>(first_tokens), 0);
  segments_.insert(segments_.end(), static_cast<size_t>(length - first_tokens), 1);
  for (const MaskedToken& token : masked) {
    positions_.push_back(token.position);
    masked_ids_.push_back(token.id);
  }
  // The positions of the row that its tokens and masks do not fill are padding.
  const auto rows = static_cast<size_t>(size() + 1);
  const size_t places = rows * static_cast<size_t>(seq_len_);
  ids_.resize(places, pad);
  mask_.resize(places);
  segments_.resize(places);
  positions_.resize(rows * static_cast<size_t>(predictions_));
  masked_ids_.resize(positions_.size());
  next_sentence_.push_back(random_next ? 1 : 0);
  ++counts.examples;
  counts.random_next += random_next ? 1 : 0;
  counts.tokens += length;
  counts.short_examples += length < seq_len_ ? 1 : 0;
}

BertShard ExampleRows::shard(const std::vector<int64_t>& order) const {
  const ShardShape shape{static_cast<int64_t>(order.size()), seq_len_, predictions_};
  std::string bytes;
  bytes.reserve(shard_bytes(shape));
  // The columns have the order of ShardColumn.
  append_rows(ids_, seq_len_, order, bytes);
  append_rows(positions_, predictions_, order, bytes);
  append_rows(masked_ids_, predictions_, order, bytes);
  append_rows(mask_, seq_len_, order, bytes);
  append_rows(segments_, seq_len_, order, bytes);
  append_rows(next_sentence_, 1, order, bytes);
  return {shape, std::move(bytes)};
}

/// The two texts of the row that is being made.
struct ExampleMaker::Pair {
  std::vector<int32_t> first;
  std::vector<int32_t> second;
  bool random_next = false;
};

ExampleMaker::ExampleMaker(const DocumentSpool& spool, const BertVocabulary& vocabulary,
                           const ExampleOptions& options)
    : spool_(spool), vocabulary_(vocabulary), options_(options) {
  if (spool.counts().documents < 2) {
    throw InputError("data",
                     "the inputs hold only one document, but next-sentence pairs need at "
                     "least two; give each document a record of its own, or separate "
                     "documents by blank lines with --sentences lines");
  }
}

void ExampleMaker::second_from_elsewhere(int64_t document, int64_t wanted, Draws& draws,
                                         std::vector<int32_t>& out) const {
  int64_t other = draws.below(spool_.counts().documents - 1);
  other += other >= document ? 1 : 0;
  const int64_t sentences = spool_.num_sentences(other);
  for (int64_t i = draws.below(sentences); i < sentences; ++i) {
    spool_.append_sentence(other, i, out);
    if (static_cast<int64_t>(out.size()) >= wanted) return;
  }
}

void ExampleMaker::finish(Pair& pair, Draws& draws, ExampleRows& rows) const {
  const auto most = static_cast<size_t>(options_.seq_len - kAroundPair);
  std::vector<int32_t>& a = pair.first;
  std::vector<int32_t>& b = pair.second;
  // The tokens to cut are counted first, so that each text is cut once.
  size_t a_front = 0;
  size_t a_size = a.size();
  size_t b_front = 0;
  size_t b_size = b.size();
  while (a_size + b_size > most) {
    const bool front = draws.chance(0.5);
    if (a_size > b_size) {
      --a_size;
      a_front += front ? 1 : 0;
    } else {
      --b_size;
      b_front += front ? 1 : 0;
    }
    ++rows.counts.cut_tokens;
  }
  std::vector<int32_t> row;
  row.reserve(a_size + b_size + kAroundPair);
  const auto add = [&row](const std::vector<int32_t>& text, size_t front, size_t size) {
    const auto begin = text.begin() + static_cast<ptrdiff_t>(front);
    row.insert(row.end(), begin, begin + static_cast<ptrdiff_t>(size));
  };
  row.push_back(vocabulary_.cls);
  add(a, a_front, a_size);
  row.push_back(vocabulary_.sep);
  const auto first_tokens = static_cast<int64_t>(row.size());
  add(b, b_front, b_size);
  row.push_back(vocabulary_.sep);
  const std::vector<MaskedToken> masked =
      mask_tokens(vocabulary_, options_.mask, draws, row, rows.counts.masks);
  rows.add(row, first_tokens, vocabulary_.pad, masked, pair.random_next);
}

void ExampleMaker::make(int64_t pass, int64_t document, ExampleRows& rows) const {
  Draws draws(options_.seed, "bert examples", pass, document);
  const int64_t most = options_.seq_len - kAroundPair;
  const int64_t target =
      draws.chance(options_.short_share) ? draws.between(kShortestPair, most) : most;
  const int64_t sentences = spool_.num_sentences(document);
  for (int64_t begin = 0; begin < sentences;) {
    int64_t end = begin;
    int64_t length = 0;
    while (end < sentences && length < target) {
      length += spool_.sentence_tokens(document, end++);
    }
    const int64_t gathered = end - begin;
    const int64_t cut = begin + (gathered >= 2 ? draws.between(1, gathered - 1) : 1);
    Pair pair;
    for (int64_t i = begin; i < cut; ++i) spool_.append_sentence(document, i, pair.first);
    pair.random_next = gathered == 1 || draws.chance(kRandomNextShare);
    if (pair.random_next) {
      second_from_elsewhere(document, target - static_cast<int64_t>(pair.first.size()),
                            draws, pair.second);
      begin = cut;  // sentences that were not used are used next
    } else {
      for (int64_t i = cut; i < end; ++i) {
        spool_.append_sentence(document, i, pair.second);
      }
      begin = end;
    }
    finish(pair, draws, rows);
  }
}

}  // namespace longhaul::data
