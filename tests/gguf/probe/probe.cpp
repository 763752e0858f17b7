// The program `probe MODEL` answers one line for each line of standard input:
// - "ids HEX" with the ids of a text of UTF-8 bytes, where "-" is an empty text;
// - "scores ID ID ..." for each position but the last with the best next token and the
//   log-probability of the token that follows;
// - "greedy N ID ..." with the N best next tokens, one after the other.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  if (hex == "-") return bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

struct Model {
  llama_model* model;
  llama_context* context;
  int32_t vocab_size;

  void ids(const std::string& text) const {
    const llama_vocab* vocab = llama_model_get_vocab(model);
    std::vector<llama_token> found(text.size() + 8);
    const int32_t count = llama_tokenize(
        vocab, text.data(), static_cast<int32_t>(text.size()), found.data(),
        static_cast<int32_t>(found.size()), /*add_special=*/true, /*parse_special=*/true);
    for (int32_t i = 0; i < count; ++i) std::printf("%d ", found[i]);
  }

  void decode(const std::vector<llama_token>& ids, size_t first) const {
    llama_batch batch = llama_batch_init(static_cast<int32_t>(ids.size()), 0, 1);
    for (size_t i = first; i < ids.size(); ++i) {
      const auto at = static_cast<size_t>(batch.n_tokens);
      batch.token[at] = ids[i];
      batch.pos[at] = static_cast<llama_pos>(i);
      batch.n_seq_id[at] = 1;
      batch.seq_id[at][0] = 0;
      batch.logits[at] = 1;
      ++batch.n_tokens;
    }
    if (llama_decode(context, batch) != 0) std::exit(3);
    llama_batch_free(batch);
  }

  int32_t best(const float* logits) const {
    int32_t found = 0;
    for (int32_t i = 1; i < vocab_size; ++i) {
      if (logits[i] > logits[found]) found = i;
    }
    return found;
  }

  void scores(const std::vector<llama_token>& ids) const {
    llama_memory_clear(llama_get_memory(context), true);
    decode(ids, 0);
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const float* logits = llama_get_logits_ith(context, static_cast<int32_t>(i));
      const int32_t top = best(logits);
      double sum = 0.0;
      for (int32_t k = 0; k < vocab_size; ++k)
        sum += std::exp(double{logits[k]} - logits[top]);
      std::printf("%d %.9g ", top, logits[ids[i + 1]] - logits[top] - std::log(sum));
    }
  }

  void greedy(int count, std::vector<llama_token> ids) const {
    llama_memory_clear(llama_get_memory(context), true);
    size_t first = 0;
    for (int i = 0; i < count; ++i) {
      decode(ids, first);
      first = ids.size();
      ids.push_back(best(llama_get_logits_ith(context, -1)));
      std::printf("%d ", ids.back());
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
  llama_model_params of_model = llama_model_default_params();
  of_model.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], of_model);
  if (model == nullptr) return 4;
  llama_context_params of_context = llama_context_default_params();
  of_context.n_ctx = 512;
  of_context.n_batch = of_context.n_ubatch = 512;
  of_context.n_threads = of_context.n_threads_batch = 1;
  of_context.type_k = of_context.type_v = GGML_TYPE_F32;
  of_context.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, of_context);
  if (context == nullptr) return 5;
  const Model asked{model, context, llama_vocab_n_tokens(llama_model_get_vocab(model))};
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what, hex;
    words >> what;
    int count = 0;
    if (what == "ids") words >> hex;
    if (what == "greedy") words >> count;
    std::vector<llama_token> ids;
    for (llama_token id; words >> id;) ids.push_back(id);
    if (what == "ids") asked.ids(bytes_of(hex));
    if (what == "scores") asked.scores(ids);
    if (what == "greedy") asked.greedy(count, ids);
    std::printf("\n");
    std::fflush(stdout);
  }
  llama_free(context);
  llama_model_free(model);
  return 0;
}
