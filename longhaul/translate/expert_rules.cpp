#include "longhaul/translate/flag_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"
#include "longhaul/dictionary/tables.h"

namespace longhaul::translate {
namespace {

/// Settings of the other systems with which experts or a router differ from longhaul's.
struct OtherMixture {
  std::string_view names;  ///< with spaces between them
  std::string_view same;   ///< values that change nothing
  std::string_view why;
};

constexpr OtherMixture kOtherMixtures[] = {
    {"moe_router_score_function", "softmax", dictionary::kNoSuchMixture},
    {"moe_router_topk_scaling_factor", "1 1.0", dictionary::kNoSuchMixture},
    {"moe_router_num_groups moe_router_group_topk moe_router_topk_limited_devices "
     "moe_shared_expert_intermediate_size num_shared_experts enable_shared_expert "
     "moe_router_force_load_balancing moe_force_load_balance",
     "0 false False", dictionary::kNoSuchMixture},
    {"moe_router_enable_expert_bias moe_router_expert_bias moe_router_bias_update_rate",
     "0 0.0 false False", dictionary::kNoBias},
    {"moe_expert_capacity_factor", "", dictionary::kDropless},
    {"moe_input_jitter_eps input_jitter_eps", "0 0.0", dictionary::kNoJitter},
    {"moe_router_dtype", "", dictionary::kRouterProduct},
};

/// Asks for experts.balance if the other system balances experts by something else than
/// one term of the loss.
void ask_for_balance(const Job& job, const Said& said) {
  job.draft().fill("experts.balance",
                   "{} has no form here: there are sequence, global, pooled and off",
                   said.as_written());
}

/// Puts a term's weight. Megatron-LM adds the term up over the layers that have experts,
/// whose number is `layers`, and longhaul takes the average of these layers. So the
/// weight is multiplied by `layers`, and divided by `over`. Asks the user for the weight
/// if a number is not known.
void put_megatron_weight(const Job& job, const std::string& key,
                         const Known<double>& coefficient, const Known<int64_t>& layers,
                         const Known<int64_t>& over, const std::string& over_what) {
  Draft& draft = job.draft();
  if (!coefficient.value) return draft.fill(key, coefficient.from);
  if (layers.value_or(0) < 1 || over.value_or(0) < 1) {
    return draft.fill(key, "{} {} x the layers with experts{}", coefficient.from,
                      *coefficient.value, over_what.empty() ? "" : " / " + over_what);
  }
  const double weight = *coefficient.value * static_cast<double>(*layers.value) /
                        static_cast<double>(*over.value);
  draft.put(
      key, weight,
      fmt::format(
          "{} {} * {} layers{}", coefficient.from, *coefficient.value, *layers.value,
          over_what.empty() ? "" : fmt::format(" / {} {}", *over.value, over_what)));
}

/// Returns the number of Megatron-LM's layers if each of them has experts, else nothing.
Known<int64_t> megatron_layers(const Job& job) {
  const Said* const some = job.find("moe_layer_freq");
  if (some != nullptr && some->text() != "1") return {};
  return job.whole("num_layers");
}

/// One of Megatron-LM's terms that balance experts.
struct MegatronTerm {
  std::string type;
  std::string from;  ///< where the type comes from
  Known<double> weight;
  Known<int64_t> layers;  ///< those with experts
  Known<int64_t> experts_of_token;
  Known<int64_t> micro_batch;
};

void put_megatron_term(const Job& job, const MegatronTerm& term) {
  Draft& draft = job.draft();
  if (term.weight.value_or(1.0) == 0.0) {
    return draft.put("experts.balance", "off",
                     fmt::format("moe_aux_loss_coeff 0{}",
                                 term.weight.given ? "" : ", their default"));
  }
  draft.put("experts.balance", term.type == "global_aux_loss" ? "global" : "sequence",
            term.from);
  if (term.type == "aux_loss" && term.micro_batch.value_or(0) != 1) {
    draft.leave(
        "CAUTION {}: their loads are of a micro batch, and here of a sequence, which is "
        "the same with one sequence in a micro batch",
        term.from);
  }
  // With even loads Megatron-LM's term is 1, and longhaul's term is the number of experts
  // of a token.
  put_megatron_weight(job, "experts.balance_weight", term.weight, term.layers,
                      term.experts_of_token, "experts of a token");
}

/// Puts the keys of [experts] by which Megatron-LM's experts get balanced loads.
void put_megatron_balance(const Job& job) {
  Draft& draft = job.draft();
  const char* const kType = "moe_router_load_balancing_type";
  const char* const kWeight = "moe_aux_loss_coeff";
  for (const char* name : {kType, kWeight}) {
    const Said* const said = job.find(name);
    if (said != nullptr && said->values.size() > 1) {
      ask_for_balance(job, *said);
      return draft.fill("experts.balance_weight", "{}: there is one term",
                        said->as_written());
    }
  }
  const Known<std::string> type = job.text(kType, "aux_loss");
  const Known<double> weight = job.real(kWeight, 0.0);
  if (!type.value) return draft.fill("experts.balance", type.from);
  const bool term = has_word("aux_loss seq_aux_loss global_aux_loss", *type.value);
  if (!term) job.leave(kWeight, "no term of the loss takes it");
  if (*type.value == "none") {
    return draft.put("experts.balance", "off", type.from + " none");
  }
  if (!term) return ask_for_balance(job, *job.find(kType));
  put_megatron_term(job, {.type = *type.value,
                          .from = type.given ? type.from + " " + *type.value
                                             : *type.value + ", their default",
                          .weight = weight,
                          .layers = megatron_layers(job),
                          .experts_of_token = job.whole("moe_router_topk", 2),
                          .micro_batch = job.whole("micro_batch_size")});
}

}  // namespace

void put_expert_ranks(const Job& job, const std::string& ranks, const std::string& tensor,
                      std::optional<int64_t> otherwise) {
  Draft& draft = job.draft();
  const Known<int64_t> ep = job.whole(ranks);
  if (!ep.given) return;
  const int64_t tp = std::max<int64_t>(draft.whole("parallel.tp", 1), 1);
  const Known<int64_t> each = job.whole(tensor, otherwise.value_or(tp));
  const bool spread = ep.value_or(2) > 1;
  if (!spread || (each.value && *each.value == tp)) return job.put("parallel.ep", ep);
  if (!ep.value || !each.value) {
    return draft.fill("parallel.ep", ep.value ? each.from : ep.from);
  }
  const std::string from = fmt::format("{} {} * {} ranks of an expert ({})", ep.from,
                                       *ep.value, *each.value, each.from);
  const auto all = checked_product(*ep.value, *each.value);
  if (!all || *all % tp != 0) {
    return draft.fill("parallel.ep", "{}: here each of the tp {} ranks has a part", from,
                      tp);
  }
  draft.put("parallel.ep", *all / tp, fmt::format("{} / tp {}", from, tp));
}

void note_other_mixtures(const Job& job, const std::string& prefix) {
  for (const OtherMixture& mixture : kOtherMixtures) {
    for (const std::string& word : split_words(mixture.names)) {
      const std::string name = prefix + word;
      const Said* const said = job.find(name);
      if (said == nullptr) continue;
      if (has_word(mixture.same, said->text())) {
        job.leave(name, "it is so here");
      } else {
        job.caution(name, std::string(mixture.why));
      }
    }
  }
}

void put_megatron_experts(const Job& job) {
  put_expert_ranks(job, "expert_model_parallel_size", "expert_tensor_parallel_size", {});
  if (job.find("num_experts") == nullptr) {
    std::string names =
        "moe_router_load_balancing_type moe_aux_loss_coeff moe_z_loss_coeff";
    for (const OtherMixture& mixture : kOtherMixtures) {
      names += fmt::format(" {}", mixture.names);
    }
    for (const std::string& name : split_words(names)) {
      job.leave(name, "their script reads it only with --num-experts");
    }
    return;
  }
  put_megatron_balance(job);
  const Known<double> z_loss = job.real("moe_z_loss_coeff");
  if (z_loss.given) {
    put_megatron_weight(job, "experts.z_loss", z_loss, megatron_layers(job), {1, ""}, "");
  }
  note_other_mixtures(job, "");
}

void put_smp_experts(const Job& job) {
  Draft& draft = job.draft();
  job.put("parallel.ep", job.whole("expert_parallel_degree"));
  // SageMaker takes its experts from Megatron-LM, with other default weights.
  const auto weight_of = [&](const std::string& name) {
    Known<double> weight = job.real(name, 0.001);
    if (!weight.given) weight.from = name + ", their default";
    return weight;
  };
  const Known<double> weight = weight_of("moe_aux_loss_coeff");
  const Known<double> z_loss = weight_of("moe_z_loss_coeff");
  // A named model has layers and experts of its own, whatever the flags say.
  const bool named = draft.has("model.config");
  const Known<int64_t> layers = named ? Known<int64_t>{} : job.whole("num_layers");
  const Said* const said = job.find("moe_load_balancing");
  if (said != nullptr || job.find("moe_z_loss_coeff") != nullptr) {
    put_megatron_weight(job, "experts.z_loss", z_loss, layers, {1, ""}, "");
  }
  const Known<std::string> type = job.text("moe_load_balancing");
  if (type.value_or("") == "aux_loss") {
    return put_megatron_term(
        job, {.type = "aux_loss",
              .from = said->as_written(),
              .weight = weight,
              .layers = layers,
              .experts_of_token =
                  named ? Known<int64_t>{} : job.whole("num_experts_per_tok", 2),
              .micro_batch = job.whole("train_batch_size", 2)});
  }
  job.leave("moe_aux_loss_coeff", "only --moe_load_balancing aux_loss takes it");
  if (said == nullptr) return;
  if (!type.value) return draft.fill("experts.balance", type.from);
  if (*type.value != "none") return ask_for_balance(job, *said);
  draft.put("experts.balance", "off", said->as_written());
}

}  // namespace longhaul::translate
