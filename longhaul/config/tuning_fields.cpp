// The fields of [adapter] and [preference], and the rules between them and other
// settings.
#include <cmath>
#include <limits>

#include "longhaul/config/codec.h"
#include "longhaul/config/fields.h"
#include "longhaul/config/rules.h"
#include "longhaul/config/special_codecs.h"

namespace longhaul {

constexpr auto names_of(AdapterKind) { return std::array{"lora", "dora"}; }
constexpr auto names_of(PreferenceLoss) {
  return std::array{"sigmoid",  "ipo",          "hinge", "robust",
                    "apo_zero", "sigmoid_norm", "simpo", "orpo"};
}

using config::make_field;
using enum ResumeClass;

double AdapterSection::scale() const {
  const auto of = static_cast<double>(rank.value());
  return alpha.value() / (rslora ? std::sqrt(of) : of);
}

config::Fields fields_of(AdapterSection& s) {
  constexpr double kMaxRank = 1 << 16;
  return {
      make_field(
          "kind", s.kind, Match,
          "trains a low-rank part of each module and keeps the module's own weight "
          "as it is; dora: also the length of each row of the weight")
          .when_absent("all weights are trained"),
      make_field("rank", s.rank, Match, "rank of the low-rank parts")
          .within(1, kMaxRank)
          .when_absent("required with kind"),
      make_field("alpha", s.alpha, Match,
                 "the low-rank part is multiplied by alpha / rank")
          .above(0)
          .when_absent("required with kind"),
      make_field("rslora", s.rslora, Match,
                 "multiply by alpha over the root of the rank instead"),
      make_field("dropout", s.dropout, Logged,
                 "share of the input's elements that the low-rank part does not see")
          .below(0, 1),
      make_field(
          "modules", s.modules, Match,
          "linear layers that get a low-rank part: \"all-linear\" of the blocks, "
          "names, the last parts of names, or patterns of whole names with * or ?; "
          "experts are mlp.experts.gate_up_proj and mlp.experts.down_proj"),
      make_field("save", s.save, Match,
                 "modules that are trained whole and are kept with the adapter, named as "
                 "in adapter.modules"),
  };
}

config::Fields fields_of(PreferenceSection& s) {
  return {
      make_field("loss", s.loss, Match,
                 "the loss of a pair; sigmoid: DPO. All but simpo and orpo compare the "
                 "model with the run's first weights")
          .when_absent("the run predicts next tokens"),
      make_field("beta", s.beta, Logged,
                 "scale of the rewards; ipo: the regularization; orpo: weight of the "
                 "odds ratio beside the chosen side's loss")
          .above(0),
      make_field("label_smoothing", s.label_smoothing, Logged,
                 "robust and simpo: the share of pairs whose sides are taken to be "
                 "exchanged")
          .within(0, 0.5),
      make_field("simpo_gamma", s.simpo_gamma, Logged,
                 "simpo: the margin of the rewards that the loss aims at")
          .at_least(0),
  };
}

namespace config {

bool has_scale(const AdapterSection& section) {
  using Limits = std::numeric_limits<float>;
  const double scale = section.scale();
  return scale >= Limits::min() && scale <= Limits::max();
}

void check_adapter(const RunConfig& c, std::vector<std::string>& warnings) {
  const AdapterSection& a = c.adapter;
  const WarnUnused unused{c, warnings};
  if (!a.kind) {
    const AdapterSection usual;
    const auto unused_key = [&](bool set, const char* key) {
      unused(set, key, "adapter.kind is not given");
    };
    unused_key(a.rank.has_value(), "adapter.rank");
    unused_key(a.alpha.has_value(), "adapter.alpha");
    unused_key(a.rslora, "adapter.rslora");
    unused_key(a.dropout > 0.0, "adapter.dropout");
    unused_key(a.modules != usual.modules, "adapter.modules");
    unused_key(a.save != usual.save, "adapter.save");
    if (c.init.adapter.empty()) return;
    fail_key(c, "init.adapter",
             "init.adapter needs [adapter] with the kind, rank and alpha of {}",
             c.init.adapter.string());
  }
  if (!a.rank || !a.alpha) {
    fail_key(
        c, "adapter.kind",
        "{} is not given; an adapter needs it: its part is multiplied by alpha / rank",
        a.rank ? "adapter.alpha" : "adapter.rank");
  }
  if (!has_scale(a)) {
    fail_key(
        c, "adapter.alpha",
        "adapter.alpha = {} with adapter.rank = {} gives the scale {}, which is not a "
        "positive number in fp32",
        *a.alpha, *a.rank, a.scale());
  }
  if (a.modules.entries.empty()) {
    fail_key(c, "adapter.modules", "adapter.modules is an empty list; name a module");
  }
  if (c.init.weights.empty()) {
    fail_key(c, "adapter.kind",
             "an adapter is trained beside the weights of a model; set init.weights");
  }
  if (c.optimizer.kind == OptimizerKind::Lamb) {
    fail_key(c, "optimizer.kind",
             "optimizer.kind = \"lamb\" is not available with [adapter]: the first norm "
             "of lora_B is 0; take \"adamw\"");
  }
  for (const ParameterGroup& group : c.optimizer.groups) {
    if (!group.frozen) continue;
    fail_key(c, "optimizer.groups",
             "optimizer.groups freezes \"{}\", but [adapter] freezes all of the model; "
             "choose what is trained by adapter.modules and adapter.save",
             group.match);
  }
}

void check_preference(const RunConfig& c, std::vector<std::string>& warnings) {
  const PreferenceSection& p = c.preference;
  const WarnUnused unused{c, warnings};
  const PreferenceSection defaults;
  const bool robust = p.loss == PreferenceLoss::Robust;
  const bool simpo = p.loss == PreferenceLoss::Simpo;
  if (!p.loss) {
    unused(p.beta != defaults.beta, "preference.beta", "preference.loss is not given");
  }
  unused(!robust && !simpo && p.label_smoothing != 0.0, "preference.label_smoothing",
         "preference.loss is neither \"robust\" nor \"simpo\"");
  unused(!simpo && p.simpo_gamma != defaults.simpo_gamma, "preference.simpo_gamma",
         "preference.loss is not \"simpo\"");
  unused(p.loss && c.adapter.dropout > 0.0, "adapter.dropout",
         "[preference] trains without dropout");
  if (!p.loss) return;
  if (c.data.pack != PackKind::Whole) {
    fail_key(c, "preference.loss",
             "[preference] needs both sides of a pair in one row; set data.pack = "
             "\"whole\"");
  }
  if (robust && p.label_smoothing >= 0.5) {
    fail_key(c, "preference.label_smoothing",
             "preference.label_smoothing = {}: with half of the pairs exchanged, loss = "
             "\"robust\" learns nothing; choose a value below 0.5",
             p.label_smoothing);
  }
  if (c.optimizer.z_loss > 0.0) {
    fail_key(c, "optimizer.z_loss",
             "optimizer.z_loss = {} belongs to a loss over tokens, and [preference] has "
             "one over pairs; leave it out",
             c.optimizer.z_loss);
  }
}

}  // namespace config
}  // namespace longhaul
