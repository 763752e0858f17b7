#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/data/bert/shards/hdf5_shard.h"
#include "longhaul/tokenizer/tokenizer.h"
#include "tests/support/data_files.h"

namespace longhaul::data {

inline constexpr int kTestWords = 400;

/// Returns a WordPiece tokenizer of [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, the
/// words w0 w1 ... from 5 on, and last the piece ##s.
inline std::unique_ptr<tokenizer::Tokenizer> test_bert_tokenizer(
    const TestDirectory& dir) {
  Json vocab = Json::object();
  Json added = Json::array();
  int id = 0;
  for (const char* const token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    added.push_back({{"id", id},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
    vocab[token] = id++;
  }
  for (int word = 0; word < kTestWords; ++word) vocab[fmt::format("w{}", word)] = id++;
  vocab["##s"] = id;
  const Json json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "[UNK]"},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 100},
        {"vocab", vocab}}}};
  return tokenizer::Tokenizer::load(dir.write("tokenizer.json", json.dump()));
}

/// Returns a shard whose values tell their positions: ids count up from `first_id`, and
/// the first masked position of row i is 1 + i % (seq_len - 1).
inline BertShard test_shard(int64_t rows, int64_t seq_len, int64_t predictions,
                            int32_t first_id = 10) {
  const ShardShape shape{rows, seq_len, predictions};
  std::vector<int32_t> wide;
  const auto all = [&](int64_t width) { return rows * width; };
  for (int64_t i = 0; i < all(seq_len); ++i) {
    wide.push_back(first_id + static_cast<int32_t>(i % 20'000));
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t p = 0; p < predictions; ++p) {
      wide.push_back(p < 2 ? static_cast<int32_t>(1 + (row + p) % (seq_len - 1)) : 0);
    }
  }
  for (int64_t i = 0; i < all(predictions); ++i) {
    wide.push_back(static_cast<int32_t>(7 + i % 1000));
  }
  std::string bytes(reinterpret_cast<const char*>(wide.data()), wide.size() * 4);
  bytes.append(static_cast<size_t>(all(seq_len)), '\1');
  for (int64_t i = 0; i < all(seq_len); ++i) bytes += static_cast<char>(i % 2);
  for (int64_t row = 0; row < rows; ++row) bytes += static_cast<char>(row % 2);
  return {shape, std::move(bytes)};
}

inline fs::path write_test_shard(const TestDirectory& dir, const std::string& name,
                                 const BertShard& shard) {
  write_packed_shard(dir / name, pack_shard(shard));
  return dir / name;
}

}  // namespace longhaul::data
