#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/tokenizer/learn/learn_tokenizer.h"
#include "longhaul/tokenizer/stream_decoder.h"
#include "longhaul/tokenizer/tokenizer.h"

// Serves tests/parity/test_tokenizer.py. A file of texts has for each text its length as
// little-endian u32 and its bytes. A file of ids has for each text a u32 count and the
// ids. The decoded text follows as a u32 length and bytes.
namespace {

using namespace longhaul;

std::vector<std::string> read_texts(const char* path) {
  const std::string file = read_text(path, uint64_t{1} << 32);
  std::vector<std::string> texts;
  for (size_t pos = 0; pos + 4 <= file.size();) {
    uint32_t size = 0;
    std::memcpy(&size, file.data() + pos, 4);
    texts.push_back(file.substr(pos + 4, size));
    pos += 4 + size_t{size};
  }
  return texts;
}

void put(std::string& out, uint32_t value) {
  out.append(reinterpret_cast<const char*>(&value), 4);
}

/// Throws InputError if ids that are decoded one by one give another text than all
/// together. Texts with bytes that form no character are not compared.
void check_stream(const tokenizer::Tokenizer& tokenizer,
                  const std::vector<tokenizer::TokenId>& ids, bool special,
                  const std::string& decoded) {
  if (decoded.find("\xEF\xBF\xBD") != std::string::npos) return;
  tokenizer::StreamDecoder stream(tokenizer, special);
  std::string text;
  for (const tokenizer::TokenId id : ids) text += stream.add(id);
  text += stream.finish();
  if (text != decoded) {
    throw InputError("tokenize_tool",
                     fmt::format("streamed \"{}\", decoded \"{}\"", text.substr(0, 500),
                                 decoded.substr(0, 500)));
  }
}

/// Runs the command encode TOKENIZER TEXTS OUT special|plain.
int encode(char** arguments) {
  const auto tokenizer = tokenizer::Tokenizer::load(arguments[0]);
  const bool special = std::string(arguments[3]) == "special";
  std::string out;
  std::vector<tokenizer::TokenId> ids;
  double seconds = 0;
  for (const std::string& text : read_texts(arguments[1])) {
    ids.clear();
    const auto start = std::chrono::steady_clock::now();
    tokenizer->encode(text, special, ids);
    seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    put(out, static_cast<uint32_t>(ids.size()));
    for (const tokenizer::TokenId id : ids) put(out, id);
    const std::string decoded = tokenizer->decode(ids, special);
    check_stream(*tokenizer, ids, special, decoded);
    put(out, static_cast<uint32_t>(decoded.size()));
    out += decoded;
  }
  File file = File::create(arguments[2]);
  file.write(out);
  file.close();
  fmt::print("{:.6f}\n", seconds);
  return 0;
}

/// Runs the command train TEXTS OUT_DIR gpt2|llama3|... VOCAB_SIZE MIN_FREQUENCY.
int train(char** arguments) {
  const std::vector<std::string> texts = read_texts(arguments[0]);
  tokenizer::TrainOptions options;
  const std::string name = arguments[2];
  for (const auto split :
       {tokenizer::SplitPattern::Gpt2, tokenizer::SplitPattern::Llama3,
        tokenizer::SplitPattern::Qwen2, tokenizer::SplitPattern::O200k}) {
    if (tokenizer::split_name(split) == name) options.split = split;
  }
  tokenizer::set_default_special_tokens(options);
  options.vocab_size = std::stoul(arguments[3]);
  options.min_frequency = std::stoul(arguments[4]);
  size_t next = 0;
  const auto trained = tokenizer::train_bpe(
      [&](std::string& text) {
        if (next == texts.size()) return false;
        text = texts[next++];
        return true;
      },
      options);
  tokenizer::write_tokenizer(arguments[1], trained, options);
  return 0;
}

/// Runs the command warnings TOKENIZER...: prints a line for each tokenizer, its warnings
/// as a JSON list.
int warnings(int count, char** paths) {
  for (int i = 0; i < count; ++i) {
    fmt::print("{}\n", Json(tokenizer::Tokenizer::load(paths[i])->warnings()).dump());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string verb = argc > 1 ? argv[1] : "";
    if (verb == "encode" && argc == 6) return encode(argv + 2);
    if (verb == "train" && argc == 7) return train(argv + 2);
    if (verb == "warnings") return warnings(argc - 2, argv + 2);
    fmt::print(stderr, "wrong arguments\n");
    return 2;
  } catch (const longhaul::Error& error) {
    fmt::print(stderr, "longhaul: error: {}\n", error.what());
    return error.exit_code();
  }
}
