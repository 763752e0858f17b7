#include "apps/inputs/chat_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "longhaul/base/error.h"
#include "longhaul/chat/chat_encoder.h"
#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/wrong_files.h"
#include "longhaul/data/store/build/build_store.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/system/terminal.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {
namespace {

/// A holdout must not be empty. Each chat is drawn for itself, so that about so many are
/// held out at least.
constexpr int64_t kFewestHeldOut = 20;

/// Returns the words of `data build` that hold a part of so many records out; empty where
/// they are too few for that.
std::string holdout_words(int64_t records) {
  for (const int64_t percent : {1, 10}) {
    if (records * percent / 100 >= kFewestHeldOut) {
      return fmt::format(" --holdout {}%", percent);
    }
  }
  return {};
}

/// Renders chats until all are rendered or the time is up.
class ChatCounter {
 public:
  explicit ChatCounter(const ChatQuestion& question)
      : tokenizer_(tokenizer::Tokenizer::load(question.model)),
        format_(question.model),
        encoder_(*tokenizer_, format_, chat::Targets::Assistant, chat::today()) {
    options_.arguments = question.files;
    options_.chats = true;
  }

  void count(double seconds) {
    const data::InputSet inputs(options_);
    data::InputPart part;
    for (size_t i = 0; i < inputs.files().size(); ++i) {
      part.ranges.push_back({static_cast<int>(i), 0, data::InputRange::kToEnd});
    }
    part.stored_bytes = inputs.stored_bytes();
    const auto reader = inputs.open(part);
    const system::Stopwatch watch;
    data::RawRecord record;
    while (reader->next(record)) {
      add(inputs, record);
      const uint64_t read = reader->bytes_read();
      if (watch.seconds() < seconds || read == 0) continue;
      const double share = std::clamp(
          static_cast<double>(read) / static_cast<double>(part.stored_bytes), 1e-9, 1.0);
      tokens = static_cast<int64_t>(static_cast<double>(tokens) / share);
      records = static_cast<int64_t>(static_cast<double>(records) / share);
      return;
    }
  }

  int64_t records = 0;
  int64_t pairs = 0;  ///< among the records that were rendered
  int64_t tokens = 0;
  int64_t longest = 0;  ///< tokens of the longest record that was rendered

 private:
  void add(const data::InputSet& inputs, data::RawRecord& record) {
    data::ParsedRecord parsed = data::parse_record(record, options_);
    if (parsed.problem == data::RecordProblem::Empty) return;
    if (parsed.problem != data::RecordProblem::None) {
      data::fail_record(inputs, record.place, parsed.problem, parsed.detail);
    }
    try {
      const chat::EncodedRecord encoded =
          encoder_.encode(chat::parse_chat_record(parsed.text));
      const int64_t length = std::accumulate(
          encoded.sides.begin(), encoded.sides.end(), int64_t{0},
          [](int64_t sum, const auto& side) { return sum + std::ssize(side.tokens); });
      tokens += length;
      longest = std::max(longest, length);
      pairs += encoded.sides.size() == 2 ? 1 : 0;
      ++records;
    } catch (const InputError& error) {
      data::fail_record(inputs, record.place, data::RecordProblem::BadChat,
                        error.message());
    }
    if (pairs > 0 && pairs < records) {
      fail_input("data", "{}: pairs and other chats are mixed; name files of one kind",
                 inputs.describe(record.place));
    }
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  chat::ChatFormat format_;
  chat::ChatEncoder encoder_;
  data::InputOptions options_;
};

}  // namespace

DataFacts chat_facts(const ChatQuestion& question) {
  ChatCounter counter(question);
  counter.count(question.seconds);
  DataFacts facts;
  facts.path = "data/" + name_of_data(question.files.front());
  facts.records = counter.pairs > 0 ? "pairs" : "chats";
  facts.kind = facts.records + ", of which the store is not built yet";
  facts.tokens = counter.tokens;
  facts.longest = counter.longest;
  facts.exact = false;
  facts.build = "longhaul data build";
  for (const std::string& file : question.files) {
    facts.build += " " + system::shell_word(file);
  }
  const std::string holdout = holdout_words(counter.records);
  facts.build += fmt::format(" --chat --tokenizer {} --out {}{}",
                             system::shell_word(question.model.string()),
                             system::shell_word(facts.path), holdout);
  if (!holdout.empty()) {
    facts.held_out.push_back(data::holdout_path(facts.path).string());
  }
  return facts;
}

}  // namespace longhaul::apps
