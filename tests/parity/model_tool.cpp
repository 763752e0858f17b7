// For the parity tests: logits, loss and every first gradient of a model on given tokens,
// written as safetensors.
//   longhaul_model_tool MODEL_DIR TOKENS OUT [--dtype fp32|bf16] [--plain] [--fault NAME]
// TOKENS is a safetensors file with "tokens" and "targets", both I32 [B, S], and for BERT
// "segments" and "document_end", both [B, S], and "next_sentence" [B]. Its logits are
// those of positions with a target; "relation" are those of the sequences.
// With --lines alone it does so for each line of its input, whose words stand between
// tabs, and ends what it says of a line with "= CODE", the exit code of that line. A
// fault breaks one thing on purpose; a comparison that stays green with it proves
// nothing.
#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <iostream>
#include <map>
#include <sstream>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/families/describe.h"
#include "longhaul/families/model_config.h"
#include "longhaul/format/safetensors.h"
#include "longhaul/models/model.h"
#include "longhaul/session/batch.h"
#include "longhaul/tensor/flat_pieces.h"
#include "longhaul/tensor/vector_math.h"
#include "tests/dist/hidden_states.h"
#include "tests/parity/network_faults.h"
#include "tests/support/flat_parameters.h"
#include "tests/support/router_terms.h"

namespace longhaul {
namespace {

struct Arguments {
  std::string model, tokens, out, dtype = "fp32", fault;
  bool plain = false;
  bool recompute = false;
};

/// A model that is loaded on one rank, with gradient accumulators in fp32.
struct Loaded {
  ModelDescription description;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<tensor::FlatBuffers> flat;
};

Loaded load_model(const Arguments& arguments, int64_t positions) {
  const checkpoint::SharedSource files = checkpoint::WeightsSource::open(arguments.model);
  ModelConfig config = load_model_config(files->config_path());
  if (arguments.fault.starts_with("network:")) {
    const std::string fault = arguments.fault.substr(8);
    LH_CHECK(testing::plant_fault(config.network, fault), "tool", "no place for {}",
             fault);
    config.description = families::describe(config.network);
  }
  const auto source = checkpoint::as_parameters(files, config.description);
  checkpoint::check_weights(source, config.description);
  tensor::DTypePolicy policy;
  policy.compute = arguments.dtype == "bf16" ? format::DType::BF16 : format::DType::F32;
  Loaded loaded;
  loaded.description = config.description;
  loaded.model = models::build(config);
  loaded.flat = std::make_unique<tensor::FlatBuffers>(
      flat_parameters(loaded.model->parameters(), {}), policy, at::kCPU);
  read_weights(*loaded.flat,
               [&](const format::TensorSlice& slice, int64_t begin, int64_t end,
                   format::DType type, std::span<std::byte> out) {
                 source->read_flat_range(slice, begin, end, type, out);
               });
  loaded.model->prepare(positions, at::kCPU);
  return loaded;
}

data::TokenBatch read_tokens(const fs::path& path) {
  const format::SafetensorsFile file = format::SafetensorsFile::open(path);
  data::TokenBatch batch;
  const format::SafetensorsEntry* shaped = file.header().find("tokens");
  LH_CHECK(shaped != nullptr && shaped->shape.size() == 2, "tool", "no tokens");
  batch.resize(shaped->shape[0], shaped->shape[1]);
  const auto load = [&](const char* name, std::vector<int32_t>& into, int64_t count) {
    const format::SafetensorsEntry* entry = file.header().find(name);
    if (entry == nullptr) return false;
    into.resize(static_cast<size_t>(count));
    file.read(*entry, 0, std::as_writable_bytes(std::span(into)));
    return true;
  };
  const int64_t all = batch.num_sequences * batch.seq_len;
  LH_CHECK(load("tokens", batch.tokens, all) && load("targets", batch.targets[0], all),
           "tool", "no tokens, or no targets");
  load("segments", batch.segments, all);
  load("document_end", batch.document_end, all);
  std::vector<int32_t> pairs;
  if (load("next_sentence", pairs, batch.num_sequences)) batch.targets.push_back(pairs);
  for (int64_t i = 0; i < batch.num_sequences * batch.seq_len; ++i) {
    batch.positions[static_cast<size_t>(i)] = static_cast<int32_t>(i % batch.seq_len);
    batch.document_start[static_cast<size_t>(i)] = 0;
  }
  return batch;
}

void write(const fs::path& path, const std::map<std::string, at::Tensor>& tensors) {
  format::SafetensorsPlan plan;
  for (const auto& [name, tensor] : tensors)
    plan.add(name, format::DType::F32, tensor.sizes().vec());
  format::SafetensorsWriter writer(path, plan);
  for (const auto& [name, tensor] : tensors) writer.append(tensor::bytes_of(tensor));
  writer.finish();
}

/// Plants `fault` in the weights, before anything runs.
void break_weights(const models::Model& model, const std::string& fault) {
  const at::NoGradGuard no_grad;
  for (const tensor::ParameterPtr& p : model.parameters()) {
    const bool first_layer = p->name().find("layers.0.") != std::string::npos;
    const bool norm = p->name().find("input_layernorm") != std::string::npos;
    if (fault == "trained_padding") p->set_padding_row({});
    if (fault == "scaled_norm" && first_layer && norm) {
      at::Tensor w = p->weight();
      w.mul_(1.001);
    }
  }
}

/// Plants `fault` in the gradients, after the backward.
void break_gradients(const models::Model& model, const std::string& fault) {
  if (fault != "halved_gradient") return;
  at::Tensor grad = model.parameters().at(2)->grad();
  grad.mul_(0.5);
}

void run_one(const Arguments& arguments) {
  data::TokenBatch batch = read_tokens(arguments.tokens);
  const Loaded loaded = load_model(arguments, batch.seq_len);
  break_weights(*loaded.model, arguments.fault);
  nn::ForwardContext context;
  context.batch = session::batch_of(batch, 0, batch.num_sequences, at::kCPU);
  context.fused = !arguments.plain;
  if (arguments.fault == "halved_positions") {
    context.batch.positions = at::floor_divide(context.batch.positions, 2);
  }
  context.weight_gradients = std::make_shared<ops::WeightGradients>();
  std::vector<double> scales = testing::scales_of_targets(loaded.description, 1.0);
  for (size_t term = 0; term < scales.size(); ++term) {
    if (scales[term] == 0.0) continue;
    scales[term] /= static_cast<double>(batch.num_targets(term));
  }
  if (arguments.fault == "wrong_denominator") {
    scales[0] = 1.0 / static_cast<double>(batch.num_sequences * batch.seq_len);
  }
  nn::Losses losses(scales);
  context.losses = &losses;
  context.router = testing::router_of(loaded.description);
  const nn::Tensors hidden =
      testing::hidden_states(*loaded.model, context, arguments.recompute);
  const at::Tensor loss = loaded.model->loss(hidden, context);
  torch::autograd::backward({loss}, {});
  break_gradients(*loaded.model, arguments.fault);

  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> out;
  out["logits"] = loaded.model->logits(hidden[0]).to(at::kFloat).contiguous();
  if (hidden.size() > 1) out["relation"] = hidden[1].detach().to(at::kFloat).contiguous();
  out["loss"] = loss.detach().view({1}).contiguous();
  for (size_t term = 0; term < scales.size(); ++term) {
    out["loss." + std::to_string(term)] =
        at::full({1}, losses.sums()[term] * scales[term]);
  }
  for (const tensor::ParameterPtr& p : loaded.model->parameters()) {
    out["grad." + p->name()] = p->grad().to(at::kFloat).contiguous();
  }
  write(arguments.out, out);
}

Arguments parse(const std::vector<std::string>& words) {
  Arguments a;
  std::vector<std::string> plain;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--plain")
      a.plain = true;
    else if (word == "--recompute")
      a.recompute = true;
    else if (word == "--dtype" && i + 1 < words.size())
      a.dtype = words[++i];
    else if (word == "--fault" && i + 1 < words.size())
      a.fault = words[++i];
    else
      plain.push_back(word);
  }
  if (plain.size() != 3)
    throw ConfigError("tool", "usage: MODEL_DIR TOKENS OUT [options]");
  a.model = plain[0];
  a.tokens = plain[1];
  a.out = plain[2];
  return a;
}

std::vector<std::string> split_at_tabs(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; std::getline(in, word, '\t');) words.push_back(word);
  return words;
}

/// Returns the exit code.
int run(const std::vector<std::string>& words) {
  try {
    run_one(parse(words));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "longhaul_model_tool: error: {}\n", error.what());
    return error.exit_code();
  }
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  longhaul::tensor::warm_up_vector_math();
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words != std::vector<std::string>{"--lines"}) return longhaul::run(words);
  std::string line;
  while (std::getline(std::cin, line)) {
    const int code = longhaul::run(longhaul::split_at_tabs(line));
    fmt::print("= {}\n", code);
    std::fflush(stdout);
  }
  return 0;
}
