#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/data/bert/document_spool.h"
#include "longhaul/data/bert/sentences.h"
#include "longhaul/data/input/input_set.h"

namespace longhaul::data {

struct ReadDocumentsOptions {
  SentenceRule sentences = SentenceRule::Lines;
  BadRecords bad_records = BadRecords::Fail;
  int64_t max_bad_records = 1000;  ///< with BadRecords::Drop: above this the build ends
  int threads = 0;                 ///< 0: all cores
};

/// Counts of what was read, for the record of a build.
struct ReadDocumentsReport {
  SpoolCounts counts;
  DroppedRecords dropped;
  int64_t cut_sentences = 0;     ///< sentences that had to be cut into pieces
  int64_t special_in_text = 0;   ///< special tokens such as [SEP] in the texts themselves
  int64_t empty_documents = 0;   ///< texts without a token
  Json sources = Json::array();  ///< path, bytes and hash of every range that was read
};

/// Reads inputs, splits their texts into documents and sentences, and writes the tokens
/// to `out` in the order of the inputs. Worker threads tokenize beside the reading
/// thread. The memory depends on the longest record of the inputs, not on the size of the
/// inputs. A sentence of more than `longest_sentence` tokens is cut into pieces, so that
/// no token is lost to a pair that is too long. `progress` is called now and then with
/// the stored bytes that were read and the bytes of all files. Throws InputError for
/// inputs that cannot be read.
ReadDocumentsReport read_documents(
    const InputSet& inputs, const tokenizer::Tokenizer& tokenizer,
    const std::vector<uint8_t>& special_ids, const ReadDocumentsOptions& options,
    int64_t longest_sentence, const std::function<void(uint64_t, uint64_t)>& progress,
    SpoolWriter& out);

}  // namespace longhaul::data
