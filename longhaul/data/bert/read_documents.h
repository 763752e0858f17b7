#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/data/bert/document_spool.h"
#include "longhaul/data/bert/sentences.h"
#include "longhaul/data/input/input_set.h"

namespace longhaul::data {

struct ReadDocumentsOptions {
  SentenceRule sentences = SentenceRule::Lines;
  /// Longer sentences are cut into pieces of that many tokens, so that none of them is
  /// lost to a pair that is too long.
  int64_t longest_sentence = 0;
  BadRecords bad_records = BadRecords::Fail;
  int64_t max_bad_records = 1000;  ///< with BadRecords::Drop: more end the build
  int threads = 1;
  /// Called now and then with stored bytes read, and of all files.
  std::function<void(uint64_t, uint64_t)> progress;
};

/// What was read, for the record of a build.
struct ReadDocumentsReport {
  SpoolCounts counts;
  DroppedRecords dropped;
  int64_t cut_sentences = 0;     ///< that had to be cut into pieces
  int64_t special_in_text = 0;   ///< [SEP] and the like that stand in the texts
  int64_t empty_documents = 0;   ///< texts without a token
  Json sources = Json::array();  ///< path, bytes and hash of every range read
};

/// Reads inputs, splits them into documents and sentences, and spools their tokens, on
/// `threads` threads beside the reading one, in memory that does not depend on the inputs
/// (but for their longest record). The order is that of the inputs. InputError for what
/// cannot be read.
ReadDocumentsReport read_documents(const InputSet& inputs,
                                   const tokenizer::Tokenizer& tokenizer,
                                   const std::vector<uint8_t>& special_ids,
                                   const ReadDocumentsOptions& options, SpoolWriter& out);

}  // namespace longhaul::data
