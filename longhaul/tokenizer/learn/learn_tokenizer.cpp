#include "longhaul/tokenizer/learn/learn_tokenizer.h"

#include <algorithm>
#include <array>
#include <queue>
#include <set>
#include <string_view>
#include <unordered_map>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/system/run_on_threads.h"
#include "longhaul/tokenizer/tables/flat_maps.h"
#include "longhaul/tokenizer/unicode/byte_alphabet.h"

namespace longhaul::tokenizer {
namespace {

struct WordHash {
  using is_transparent = void;
  size_t operator()(std::string_view word) const {
    return hash_bytes(word.data(), word.size());
  }
};

/// The number of times that each piece occurs in the texts.
struct WordCounts {
  std::unordered_map<std::string, uint64_t, WordHash, std::equal_to<>> words;
  uint64_t texts = 0;
  uint64_t text_bytes = 0;
};

constexpr size_t kBatchBytes = size_t{8} << 20;
constexpr size_t kBatchTexts = 65536;

void count_text(std::string_view text, SplitPattern split, WordCounts& counts) {
  const CharClasses& classes = char_classes();
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = next_piece_end(split, classes, text, pos);
    const std::string_view word = text.substr(pos, end - pos);
    const auto found = counts.words.find(word);
    if (found != counts.words.end()) {
      ++found->second;
    } else {
      counts.words.emplace(word, 1);
    }
    pos = end;
  }
}

/// Counts the texts `first`, `first` + step, ... of a batch.
void count_share(const std::vector<std::string>& batch, size_t first, size_t step,
                 uint64_t texts_before, SplitPattern split, WordCounts& counts) {
  for (size_t i = first; i < batch.size(); i += step) {
    if (const auto bad = find_invalid_utf8(batch[i])) {
      fail_input("tokenizer", "text {} is not UTF-8 at byte {}", texts_before + i + 1,
                 *bad);
    }
    count_text(batch[i], split, counts);
  }
}

void count_batch(const std::vector<std::string>& batch, uint64_t texts_before,
                 SplitPattern split, std::vector<WordCounts>& shares) {
  system::run_on_threads(static_cast<int>(shares.size()), [&](int number) {
    const auto thread = static_cast<size_t>(number);
    count_share(batch, thread, shares.size(), texts_before, split, shares[thread]);
  });
}

/// Reads all texts batch by batch and counts each batch with options.threads threads.
WordCounts count_words(const NextText& next, const TrainOptions& options) {
  std::vector<WordCounts> shares(static_cast<size_t>(std::max(options.threads, 1)));
  WordCounts total;
  std::vector<std::string> batch;
  size_t batch_bytes = 0;
  const auto count = [&] {
    count_batch(batch, total.texts, options.split, shares);
    total.texts += batch.size();
    total.text_bytes += batch_bytes;
    batch.clear();
    batch_bytes = 0;
    if (options.on_read) options.on_read(total.text_bytes);
  };
  for (std::string text; next(text);) {
    batch_bytes += text.size();
    batch.push_back(std::move(text));
    text.clear();
    if (batch_bytes >= kBatchBytes || batch.size() >= kBatchTexts) count();
  }
  count();
  total.words = std::move(shares.front().words);
  for (size_t i = 1; i < shares.size(); ++i) {
    for (const auto& [word, times] : shares[i].words) total.words[word] += times;
    shares[i].words.clear();
  }
  return total;
}

constexpr size_t kBytes = 256;

uint64_t pair_of(uint32_t left, uint32_t right) { return (uint64_t{left} << 32) | right; }

/// Trains with the order of merges of Hugging Face's trainer: the largest count first,
/// and among equal counts the smallest pair of ids. Two details matter for equal results.
/// When an entry comes to the top of the queue, the count of its pair is looked up again.
/// A pair can be queued twice, because more than one merge can make its token. Its two
/// entries have the words that each of these merges has changed, and its second merge
/// gets a later rank.
class Trainer {
 public:
  Trainer(const TrainOptions& options, const WordCounts& counts);
  TrainedBpe run();

 private:
  struct Word {
    uint64_t start;
    uint32_t size;
    uint64_t count;
  };
  struct Candidate {
    int64_t count;
    uint64_t pair;
    uint32_t places;  // index into places_
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void add_alphabet();
  void add_words(const WordCounts& counts);
  void count_all_pairs();
  void change(uint64_t pair, uint32_t word, int64_t count);
  void queue_new_pairs();
  uint32_t token_for(uint32_t left, uint32_t right);
  void merge_in_word(uint32_t index, uint32_t left, uint32_t right, uint32_t result);
  std::vector<TrainedBpe::Merge> last_of_each() const;

  const TrainOptions& options_;
  std::vector<std::string> vocab_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::array<uint32_t, kBytes> byte_ids_{};
  std::vector<Word> words_;
  std::vector<uint32_t> symbols_;
  FlatMap<int64_t> pair_counts_;
  std::vector<std::vector<uint32_t>> places_;
  FlatMap<uint32_t> new_pairs_;  // pair -> index into places_, of this merge
  std::priority_queue<Candidate> queue_;
  std::vector<TrainedBpe::Merge> merges_;
};

Trainer::Trainer(const TrainOptions& options, const WordCounts& counts)
    : options_(options) {
  for (const std::string& token : options.special_tokens) {
    if (ids_.emplace(token, static_cast<uint32_t>(vocab_.size())).second) {
      vocab_.push_back(token);
    }
  }
  add_alphabet();
  add_words(counts);
}

/// Lists the alphabet in the order of characters, not of bytes.
void Trainer::add_alphabet() {
  std::array<std::pair<uint32_t, uint8_t>, kBytes> letters;
  for (size_t byte = 0; byte < kBytes; ++byte) {
    letters[byte] = {byte_to_char(static_cast<uint8_t>(byte)),
                     static_cast<uint8_t>(byte)};
  }
  std::sort(letters.begin(), letters.end());
  for (const auto& [point, byte] : letters) {
    const char as_char = static_cast<char>(byte);
    const std::string token = bytes_to_token({&as_char, 1});
    const auto [found, fresh] = ids_.emplace(token, static_cast<uint32_t>(vocab_.size()));
    if (fresh) vocab_.push_back(token);
    byte_ids_[byte] = found->second;
  }
}

void Trainer::add_words(const WordCounts& counts) {
  LH_CHECK(counts.words.size() < UINT32_MAX, "tokenizer",
           "more than 4 G distinct pieces");
  words_.reserve(counts.words.size());
  for (const auto& [word, count] : counts.words) {
    LH_CHECK(word.size() < UINT32_MAX, "tokenizer", "a piece of more than 4 GiB");
    words_.push_back({symbols_.size(), static_cast<uint32_t>(word.size()), count});
    for (const char c : word) symbols_.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  }
}

void Trainer::change(uint64_t pair, uint32_t word, int64_t count) {
  pair_counts_[pair] += count;
  if (count < 0) return;
  uint32_t& slot = new_pairs_[pair];
  if (slot == 0) {
    places_.emplace_back();
    slot = static_cast<uint32_t>(places_.size());
  }
  std::vector<uint32_t>& words = places_[slot - 1];
  if (words.empty() || words.back() != word) words.push_back(word);
}

void Trainer::count_all_pairs() {
  for (uint32_t i = 0; i < words_.size(); ++i) {
    const Word& word = words_[i];
    for (uint32_t j = 0; j + 1 < word.size; ++j) {
      change(pair_of(symbols_[word.start + j], symbols_[word.start + j + 1]), i,
             static_cast<int64_t>(word.count));
    }
  }
  queue_new_pairs();
}

void Trainer::queue_new_pairs() {
  new_pairs_.each([&](uint64_t pair, uint32_t slot) {
    const int64_t count = *pair_counts_.find(pair);
    if (count > 0) {
      queue_.push({count, pair, slot - 1});
    } else {
      std::vector<uint32_t>().swap(places_[slot - 1]);
    }
  });
  new_pairs_ = FlatMap<uint32_t>();
}

uint32_t Trainer::token_for(uint32_t left, uint32_t right) {
  const auto [found, fresh] =
      ids_.emplace(vocab_[left] + vocab_[right], static_cast<uint32_t>(vocab_.size()));
  if (fresh) vocab_.push_back(found->first);
  return found->second;
}

void Trainer::merge_in_word(uint32_t index, uint32_t left, uint32_t right,
                            uint32_t result) {
  Word& word = words_[index];
  uint32_t* symbols = symbols_.data() + word.start;
  const auto count = static_cast<int64_t>(word.count);
  uint32_t to = 0;
  for (uint32_t from = 0; from < word.size; ++from, ++to) {
    if (symbols[from] != left || from + 1 >= word.size || symbols[from + 1] != right) {
      symbols[to] = symbols[from];
      continue;
    }
    if (to > 0) {
      change(pair_of(symbols[to - 1], left), index, -count);
      change(pair_of(symbols[to - 1], result), index, count);
    }
    if (from + 2 < word.size) {
      change(pair_of(right, symbols[from + 2]), index, -count);
      change(pair_of(result, symbols[from + 2]), index, count);
    }
    symbols[to] = result;
    ++from;
  }
  word.size = to;
}

TrainedBpe Trainer::run() {
  count_all_pairs();
  const size_t start = vocab_.size();
  while (vocab_.size() < options_.vocab_size && !queue_.empty()) {
    Candidate top = queue_.top();
    queue_.pop();
    const int64_t count = *pair_counts_.find(top.pair);
    if (top.count != count) {
      top.count = count;
      queue_.push(top);
      continue;
    }
    if (count < 1 || static_cast<uint64_t>(count) < options_.min_frequency) break;
    const auto left = static_cast<uint32_t>(top.pair >> 32);
    const auto right = static_cast<uint32_t>(top.pair);
    const uint32_t result = token_for(left, right);
    merges_.push_back({left, right});
    const std::vector<uint32_t> words = std::move(places_[top.places]);
    places_[top.places] = {};
    for (const uint32_t word : words) merge_in_word(word, left, right, result);
    queue_new_pairs();
    if (options_.on_merge && merges_.size() % 256 == 0) {
      options_.on_merge(vocab_.size() - start, options_.vocab_size - start);
    }
  }
  TrainedBpe trained;
  trained.vocab = std::move(vocab_);
  trained.merges = last_of_each();
  trained.pieces = words_.size();
  return trained;
}

/// Keeps the later rank of a pair that was merged twice.
std::vector<TrainedBpe::Merge> Trainer::last_of_each() const {
  FlatMap<uint32_t> last(merges_.size());
  for (size_t i = 0; i < merges_.size(); ++i) {
    last[pair_of(merges_[i].left, merges_[i].right)] = static_cast<uint32_t>(i);
  }
  std::vector<TrainedBpe::Merge> kept;
  kept.reserve(last.size());
  for (size_t i = 0; i < merges_.size(); ++i) {
    if (*last.find(pair_of(merges_[i].left, merges_[i].right)) == i)
      kept.push_back(merges_[i]);
  }
  return kept;
}

void check_options(const TrainOptions& options) {
  const std::set<std::string> special(options.special_tokens.begin(),
                                      options.special_tokens.end());
  if (special.size() != options.special_tokens.size()) {
    throw InputError("tokenizer", "a special token is named twice");
  }
  if (special.contains("")) throw InputError("tokenizer", "a special token is empty");
  for (const std::string& token : special) {
    if (find_invalid_utf8(token)) {
      throw InputError("tokenizer", "a special token is not UTF-8");
    }
  }
  const size_t least = kBytes + special.size();
  if (options.vocab_size < least) {
    fail_input("tokenizer",
               "a vocabulary of {} is too small: 256 bytes and {} special tokens need {}",
               options.vocab_size, special.size(), least);
  }
  for (const std::string& token : {options.bos_token, options.eos_token}) {
    if (!token.empty() && !special.contains(token)) {
      fail_input(
          "tokenizer",
          "\"{}\" is to open or close documents, but is not among the special tokens",
          token);
    }
  }
  if (options.prepend_bos && options.bos_token.empty()) {
    throw InputError("tokenizer",
                     "texts are to begin with a BOS token, but no BOS token is named");
  }
  if (options.split == SplitPattern::None) {
    fail_input("tokenizer", "no split pattern is chosen; choose one of {}",
               known_splits());
  }
}

}  // namespace

void set_default_special_tokens(TrainOptions& options) {
  if (options.split == SplitPattern::Llama3) {
    options.special_tokens = {"<|begin_of_text|>", "<|end_of_text|>"};
    options.bos_token = "<|begin_of_text|>";
    options.eos_token = "<|end_of_text|>";
    options.prepend_bos = true;
  } else {
    options.special_tokens = {"<|endoftext|>"};
    options.bos_token = options.eos_token = "<|endoftext|>";
    options.prepend_bos = false;
  }
}

TrainedBpe train_bpe(const NextText& next, const TrainOptions& options) {
  check_options(options);
  const WordCounts counts = count_words(next, options);
  if (counts.words.empty()) {
    fail_input("tokenizer", "there is no text in {} documents; name files with text",
               counts.texts);
  }
  TrainedBpe trained = Trainer(options, counts).run();
  trained.texts = counts.texts;
  trained.text_bytes = counts.text_bytes;
  return trained;
}

}  // namespace longhaul::tokenizer
