#include "longhaul/data/store/build/encode_documents.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/data/store/token_words.h"

namespace longhaul::data {
namespace {

/// The seed of the hash that chooses the holdout. The constant is arbitrary but must
/// never change, because holdouts would change too.
constexpr uint64_t kHoldoutSeed = 0x6C6F6E676861756CULL;
/// The seed of the hash of documents that come as token ids. It is another constant, so
/// that ids and a text of the same bytes have different hashes.
constexpr uint64_t kIdsSeed = 0x726561647920696BULL;
/// The most bytes of the first document that go into the self-test.
constexpr size_t kFirstTextBytes = 4096;
/// A thread frees its vector of tokens when the vector's capacity has exceeded this
/// number.
constexpr size_t kKeptTokens = size_t{1} << 20;

std::string_view bytes_of(const std::vector<int32_t>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)};
}

DocumentOrigin origin_of(const RecordPlace& place) { return {place.file, place.line}; }

std::string beginning(const std::string& text) {
  size_t end = std::min(text.size(), kFirstTextBytes);
  while (end < text.size() && end > 0 &&
         (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
    --end;  // the end must not lie in the middle of a character
  }
  return text.substr(0, end);
}

/// Returns the special tokens around each text. Their description, which the store keeps,
/// also says what becomes of newlines.
SpecialTokens special_of(const tokenizer::Tokenizer* tokenizer,
                         const BuildOptions& options) {
  if (tokenizer == nullptr) return {{}, {}, "none: ready ids, taken as they are"};
  if (options.chat) return {{}, {}, "none: the chat template writes them"};
  SpecialTokens special = resolve_special_tokens(*tokenizer, options.special);
  if (options.newlines_to_spaces) {
    special.description += "; each newline of a text is a space";
  }
  return special;
}

uint64_t threshold(double share) {
  return static_cast<uint64_t>(std::ldexp(std::min(share, 0.9999), 64));
}

}  // namespace

void add_findings(ChatFindings& to, const ChatFindings& more) {
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].count == 0) to[i].first = more[i].first;
    to[i].count += more[i].count;
  }
}

std::string BuildOptions::option_of_texts() const {
  if (special_asked && special != SpecialPolicy::None) {
    return fmt::format("--special-tokens {}", policy_name(special));
  }
  return newlines_to_spaces ? "--newlines-to-spaces" : "";
}

DocumentEncoder::DocumentEncoder(const tokenizer::Tokenizer* tokenizer,
                                 const InputOptions& inputs, const BuildOptions& options)
    : tokenizer_(tokenizer),
      inputs_(inputs),
      special_(special_of(tokenizer, options)),
      newlines_to_spaces_(options.newlines_to_spaces),
      option_of_texts_(options.option_of_texts()),
      vocab_size_(tokenizer == nullptr ? options.vocab_size : tokenizer->vocab_size()),
      token_bytes_(token_bytes_for(vocab_size_)),
      holdout_below_(threshold(options.holdout)) {
  if (options.chat) {
    LH_CHECK(tokenizer != nullptr, "data", "chats without a tokenizer");
    chats_ = std::make_unique<chat::ChatEncoder>(*tokenizer, *options.chat->format,
                                                 options.chat->targets,
                                                 options.chat->day.value_or(chat::Day()));
  }
  if (tokenizer != nullptr) {
    bos_ = tokenizer->bos_id();
    eos_ = tokenizer->eos_id();
  }
}

ParsedRecord DocumentEncoder::parse(RawRecord& record) const {
  ParsedRecord parsed = parse_record(record, inputs_);
  if (parsed.problem != RecordProblem::None) return parsed;
  if (parsed.kind == ParsedRecord::Kind::Text) {
    if (tokenizer_ == nullptr) {
      parsed.problem = RecordProblem::FieldNotText;
      parsed.detail = "it is text, but there is no tokenizer";
    }
    return parsed;
  }
  const int32_t largest = *std::max_element(parsed.ids.begin(), parsed.ids.end());
  if (largest >= vocab_size_) {
    parsed.problem = RecordProblem::IdOutOfRange;
    parsed.detail = fmt::format("id {} in a vocabulary of {}", largest, vocab_size_);
  }
  return parsed;
}

bool DocumentEncoder::is_held_out(std::string_view content) const {
  return XXH3_64bits_withSeed(content.data(), content.size(), kHoldoutSeed) <
         holdout_below_;
}

std::string DocumentEncoder::add_text(const std::string& text, const RecordPlace& place,
                                      EncodedPiece& result) const {
  thread_local std::vector<tokenizer::TokenId> tokens;
  tokens.assign(special_.before.begin(), special_.before.end());
  const size_t inside = tokens.size();
  try {
    tokenizer_->encode(text, false, tokens);
  } catch (const InputError& error) {
    return error.message();
  }
  int64_t special_in_text = 0;
  for (size_t i = inside; i < tokens.size(); ++i) {
    LH_CHECK(tokens[i] < static_cast<uint64_t>(vocab_size_), "data",
             "the tokenizer made id {}, its vocabulary ends at {}", tokens[i],
             vocab_size_);
    if (tokens[i] == bos_ || tokens[i] == eos_) ++special_in_text;
  }
  tokens.insert(tokens.end(), special_.after.begin(), special_.after.end());
  if (tokens.empty()) {
    ++result.left_out[RecordProblem::Empty];  // a text that normalizes to nothing
    return {};
  }
  ShardPiece& side = is_held_out(text) ? result.sides.validation : result.sides.train;
  side.add(tokens, {}, text.size(), origin_of(place));
  side.counts().special_in_text += special_in_text;
  result.tokens += static_cast<int64_t>(tokens.size());
  if (!result.first_text) result.first_text = beginning(text);
  if (tokens.capacity() > kKeptTokens) tokens = {};
  return {};
}

std::optional<chat::ChatRecord> DocumentEncoder::parse_chat(ParsedRecord& parsed) {
  try {
    parsed.problem = RecordProblem::InvalidJson;
    const OrderedJson json = parse_ordered_json(parsed.text, "the record");
    parsed.problem = json.is_object() ? RecordProblem::None : RecordProblem::NotAnObject;
    if (!json.is_object()) return std::nullopt;
    return chat::chat_record_of(json);
  } catch (const InputError& error) {
    if (parsed.problem == RecordProblem::None) parsed.problem = RecordProblem::BadChat;
    parsed.detail = error.message();
    return std::nullopt;
  }
}

void DocumentEncoder::add_chat(ParsedRecord& parsed, const RecordPlace& place,
                               EncodedPiece& result) const {
  const std::optional<chat::ChatRecord> record = parse_chat(parsed);
  if (!record) return;
  try {
    const chat::EncodedRecord encoded = chats_->encode(*record);
    const bool held_out = holdout_below_ > 0 && is_held_out(record->text());
    ShardPiece& side = held_out ? result.sides.validation : result.sides.train;
    for (const chat::EncodedChat& one : encoded.sides) {
      const bool all = std::ranges::find(one.is_target, 0) == one.is_target.end();
      side.add(one.tokens, all ? std::span<const uint8_t>() : one.is_target,
               one.text_bytes, origin_of(place));
      result.tokens += static_cast<int64_t>(one.tokens.size());
    }
    for (size_t i = 0; i < chat::kFindings; ++i) {
      ChatFinding& finding = result.findings[i];
      if (finding.count == 0) finding.first = place;
      finding.count += encoded.findings[i];
    }
    if (!result.first_text) result.first_text = beginning(encoded.text);
  } catch (const InputError& error) {
    parsed.problem = RecordProblem::BadChat;
    parsed.detail = error.message();
  }
}

void DocumentEncoder::refuse_ids_with_option_of_texts() const {
  if (option_of_texts_.empty()) return;
  fail_input("data",
             "{}: '{}' holds ready ids, which are taken as they are; leave {} out",
             option_of_texts_, inputs_.field,
             option_of_texts_.substr(0, option_of_texts_.find(' ')));
}

void DocumentEncoder::add_ids(const ParsedRecord& parsed, const RecordPlace& place,
                              EncodedPiece& result) const {
  thread_local std::vector<tokenizer::TokenId> tokens;
  tokens.assign(parsed.ids.begin(), parsed.ids.end());
  ShardPiece& side =
      is_held_out(bytes_of(parsed.ids)) ? result.sides.validation : result.sides.train;
  side.add(tokens, parsed.is_target, 0, origin_of(place));
  result.padding += parsed.padding;
  result.tokens += static_cast<int64_t>(tokens.size());
  if (tokens.capacity() > kKeptTokens) tokens = {};
}

EncodedPiece DocumentEncoder::encode(Piece& piece,
                                     const DuplicateBits* duplicates) const {
  EncodedPiece result(token_bytes_);
  const auto use = [&](int file) {
    if (result.files.empty() || result.files.back() != file) result.files.push_back(file);
  };
  for (size_t i = 0; i < piece.records.size(); ++i) {
    RawRecord& record = piece.records[i];
    const auto number = static_cast<size_t>(piece.first) + i;
    if (duplicates != nullptr && ((duplicates->at(number / 64) >> (number % 64)) & 1U)) {
      ++result.duplicates;
      use(record.place.file);
      continue;
    }
    ParsedRecord parsed = parse(record);
    if (parsed.problem == RecordProblem::None) {
      if (chats_ != nullptr) {
        add_chat(parsed, record.place, result);
      } else if (parsed.kind == ParsedRecord::Kind::Text) {
        if (newlines_to_spaces_) std::ranges::replace(parsed.text, '\n', ' ');
        parsed.detail = add_text(parsed.text, record.place, result);
        if (!parsed.detail.empty()) parsed.problem = RecordProblem::NotTokenized;
      } else {
        refuse_ids_with_option_of_texts();
        add_ids(parsed, record.place, result);
      }
    }
    if (parsed.problem == RecordProblem::None) {
      use(record.place.file);
    } else {
      ++result.left_out[parsed.problem];
      if (parsed.problem != RecordProblem::Empty) {
        result.bad.push_back({record.place, parsed.problem, parsed.detail});
      }
    }
    record = RawRecord();  // gives its memory back early
  }
  return result;
}

std::vector<ContentHash> DocumentEncoder::hash(Piece& piece) const {
  std::vector<ContentHash> hashes;
  hashes.reserve(piece.records.size());
  for (RawRecord& record : piece.records) {
    ParsedRecord parsed = parse(record);
    if (chats_ != nullptr && parsed.problem == RecordProblem::None) {
      // encode() tells of the others.
      if (const auto chat = parse_chat(parsed)) parsed.text = chat->text();
    }
    ContentHash& hash = hashes.emplace_back();
    if (parsed.problem != RecordProblem::None) continue;
    XXH128_hash_t value{};
    if (parsed.kind == ParsedRecord::Kind::Text) {
      value = XXH3_128bits(parsed.text.data(), parsed.text.size());
    } else {
      const std::string_view ids = bytes_of(parsed.ids);
      const size_t marked = parsed.not_targets == 0 ? 0 : parsed.is_target.size();
      const uint64_t targets =
          XXH3_64bits_withSeed(parsed.is_target.data(), marked, kIdsSeed);
      value = XXH3_128bits_withSeed(ids.data(), ids.size(), targets);
    }
    hash = {value.low64, value.high64};
    record = RawRecord();
  }
  return hashes;
}

}  // namespace longhaul::data
