#include "longhaul/tokenizer/learn/word_counts.h"

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/system/run_on_threads.h"

namespace longhaul::tokenizer {
namespace {

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

}  // namespace

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

}  // namespace longhaul::tokenizer
