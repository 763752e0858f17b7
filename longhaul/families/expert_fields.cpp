#include "longhaul/families/expert_fields.h"

#include <fmt/format.h>

#include <utility>

#include "longhaul/families/plausible_sizes.h"

namespace longhaul::families {
namespace {

/// The most experts of all layers together, several times those of any published model.
constexpr int64_t kMaxExperts = int64_t{1} << 17;

int64_t read_number(const ConfigFields& fields, int64_t absent) {
  constexpr const char *kUsual = "num_experts", *kLocal = "num_local_experts";
  const int64_t local = fields.integer(kLocal, 1, kMaxWidth).value_or(absent);
  const int64_t number = fields.integer(kUsual, 1, kMaxWidth).value_or(local);
  if (fields.object().contains(kLocal) && number != local) {
    fields.fail(kUsual, "= {} disagrees with {} = {}; keep one of them", number, kLocal,
                local);
  }
  return number;
}

/// Returns the weight of the balancing loss.
double read_balance(const ConfigFields& fields) {
  constexpr const char* kKey = "router_aux_loss_coef";
  const double weight = fields.number(kKey).value_or(0.001);
  if (weight < 0.0) fields.fail(kKey, "= {} must be at least 0", weight);
  return weight;
}

}  // namespace

ExpertSettings read_experts(const ConfigFields& fields, const AbsentExperts& absent,
                            Network& network) {
  ExpertSettings out;
  const auto layers = std::ssize(network.blocks);
  out.experts = read_number(fields, absent.experts);
  const char* key = absent.number_field;
  for (const char* name : {"num_experts", "num_local_experts"}) {
    if (fields.object().contains(name)) key = name;
  }
  if (out.experts * layers > kMaxExperts) {
    fields.fail(key,
                "{} in each of num_hidden_layers = {} layers; at most {} experts "
                "are available",
                fields.valued(key, out.experts), layers, kMaxExperts);
  }
  constexpr const char* kTopK = "num_experts_per_tok";
  out.top_k = fields.integer(kTopK, 1, kMaxWidth).value_or(absent.top_k);
  if (out.top_k > out.experts) {
    fields.fail(kTopK, "{} is above {} = {}: a token goes to different experts",
                fields.valued(kTopK, out.top_k), key, out.experts);
  }
  network.balance = read_balance(fields);
  network.asks_for_balance = fields.boolean("output_router_logits").value_or(false);
  return out;
}

void put_experts(const ExpertSettings& settings, const DecoderLayer& layer) {
  const FeedForward replaced = layer.feed_forward;
  const std::string name = layer.name + settings.layer;
  Experts mixture{.router = {name + "gate", settings.experts},
                  .experts = {},
                  .top_k = settings.top_k,
                  .normalised = settings.normalised,
                  .fused = layer.name + "mlp.experts"};
  for (int64_t i = 0; i < settings.experts; ++i) {
    const std::string expert = fmt::format("{}experts.{}.", name, i);
    mixture.experts.push_back(
        {.gate = Linear{expert + settings.gate, settings.intermediate_size},
         .up = {expert + settings.up, settings.intermediate_size},
         .down = {expert + settings.down, replaced.down.out},
         .activation = replaced.activation});
  }
  layer.second.core = std::move(mixture);
}

}  // namespace longhaul::families
