#include "longhaul/measure/moving.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/order/loader.h"
#include "longhaul/data/store/build/build_store.h"
#include "longhaul/tokenizer/learn/learn_tokenizer.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::measure {
namespace {

constexpr size_t kTextBytes = size_t{4} << 20;
constexpr size_t kDocumentBytes = 4000;
constexpr size_t kVocabulary = 4096;
constexpr size_t kFileBytes = size_t{256} << 20;
constexpr size_t kWriteBytes = size_t{8} << 20;
constexpr int64_t kGroupElements = int64_t{16} << 20;  // fp32
constexpr int kGroupRuns = 2;

/// Makes lines of made-up words of syllables, with short words more often. The text is
/// the same in every run, and about as hard for a tokenizer as natural text.
class MadeUpText {
 public:
  std::string document() {
    std::string text;
    while (text.size() < kDocumentBytes) {
      const uint64_t kind = next() % 100;
      // A few words make up most of a text.
      uint64_t word = kind < 50   ? next() % 60
                      : kind < 85 ? next() % 2000
                                  : next() % 100000;
      do {
        text += kSyllables[word % std::size(kSyllables)];
        word /= std::size(kSyllables);
      } while (word > 0);
      text += kind % 17 == 0 ? ".\n" : " ";
    }
    return text;
  }

 private:
  static constexpr const char* kSyllables[] = {
      "the", "an",  "ri",  "so", "ter", "mo", "el", "ka",  "ing", "ou",  "ba", "st",
      "len", "qui", "for", "da", "us",  "ne", "vi", "com", "per", "tha", "lo", "wi"};

  uint64_t next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return state_ >> 33;
  }
  uint64_t state_ = 1;
};

std::shared_ptr<const tokenizer::Tokenizer> made_up_tokenizer(
    const std::vector<std::string>& texts, const fs::path& dir) {
  tokenizer::TrainOptions options;
  options.vocab_size = kVocabulary;
  tokenizer::set_default_special_tokens(options);
  size_t given = 0;
  const auto trained = tokenizer::train_bpe(
      [&](std::string& text) {
        if (given == texts.size() / 4) return false;
        text = texts[given++];
        return true;
      },
      options);
  tokenizer::write_tokenizer(dir, trained, options);
  return tokenizer::Tokenizer::load(dir);
}

std::shared_ptr<const data::TokenSource> made_up_store(
    const tokenizer::Tokenizer& tokenizer, const std::vector<std::string>& texts,
    const fs::path& dir) {
  File corpus = File::create(dir / "corpus.jsonl");
  for (const std::string& text : texts)
    corpus.write(json_text(Json{{"text", text}}) + "\n");
  corpus.close();
  data::BuildOptions options;
  options.inputs.arguments = {(dir / "corpus.jsonl").string()};
  options.out = dir / "store";
  data::build_store(&tokenizer, options);
  return data::open_source(options.out, /*seq_len=*/1024, /*document_mask=*/false);
}

}  // namespace

std::vector<Probe> data_probes(const fs::path& scratch) {
  MadeUpText made_up;
  auto texts = std::make_shared<std::vector<std::string>>();
  size_t bytes = 0;
  while (bytes < kTextBytes) {
    texts->push_back(made_up.document());
    bytes += texts->back().size();
  }
  const auto tokenizer = made_up_tokenizer(*texts, scratch / "tokenizer");
  const auto source = made_up_store(*tokenizer, *texts, scratch);

  constexpr int64_t kSequences = 32;
  data::LoaderOptions options;
  options.global_size = kSequences;
  options.micro_size = kSequences;
  const auto loader = std::make_shared<data::Loader>(
      std::vector<data::WeightedSource>{{source, 1.0, "made up", {}}}, options);
  return {{"text to ids, one thread", "B", static_cast<double>(bytes),
           [texts, tokenizer] {
             std::vector<tokenizer::TokenId> ids;
             for (const std::string& text : *texts) {
               ids.clear();
               tokenizer->encode(text, false, ids);
             }
           }},
          {"batches of a token store", "token",
           static_cast<double>(kSequences * source->seq_len()),
           [loader] { (void)loader->next(); }}};
}

std::vector<Probe> disk_probes(const fs::path& directory) {
  const fs::path path = directory / fmt::format("longhaul-bench-{}.tmp", ::getpid());
  const auto write = [path] {
    const std::string block(kWriteBytes, '\x5a');
    File file = File::create(path);
    for (size_t done = 0; done < kFileBytes; done += block.size()) file.write(block);
    file.sync();
    file.close();
  };
  const auto read = [path] {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.is_open())
      fail_input("bench", "{} was removed while it was measured", path.string());
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    std::string block(kWriteBytes, '\0');
    while (::read(file.get(), block.data(), block.size()) > 0) {
    }
  };
  // Removes the file together with the last probe.
  const std::shared_ptr<void> remove(nullptr, [path](void*) { try_remove(path); });
  return {{"file written and synced", "B", kFileBytes, [write, remove] { write(); }},
          {"file read again from the disk", "B", kFileBytes, [read, remove] { read(); }}};
}

std::vector<Probe> group_probes(comm::Communicator& world) {
  if (world.size() == 1) return {};
  const auto values = std::make_shared<std::vector<float>>(kGroupElements, 0.0F);
  const auto gathered =
      std::make_shared<std::vector<float>>(kGroupElements * world.size(), 0.0F);
  const auto bytes = static_cast<double>(kGroupElements) * sizeof(float);
  return {{fmt::format("sum over {} ranks", world.size()), "B", bytes,
           [values, &world] {
             world.all_reduce_wait({values->data(), kGroupElements, format::DType::F32},
                                   comm::ReduceOp::Sum);
           },
           kGroupRuns},
          {fmt::format("gather over {} ranks", world.size()), "B", bytes * world.size(),
           [values, gathered, &world] {
             world
                 .all_gather({values->data(), kGroupElements, format::DType::F32},
                             {gathered->data(), kGroupElements * world.size(),
                              format::DType::F32})
                 ->wait();
           },
           kGroupRuns}};
}

}  // namespace longhaul::measure
