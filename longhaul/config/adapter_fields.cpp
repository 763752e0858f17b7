#include <cmath>

#include "longhaul/config/fields.h"
#include "longhaul/config/rules.h"
#include "longhaul/config/special_codecs.h"

// The keys of [adapter], and the rules between these keys and other settings.

namespace longhaul {

constexpr auto names_of(AdapterKind) { return std::array{"lora", "dora"}; }

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
          "names, the last parts of names, or patterns of whole names with * or ?"),
      make_field("save", s.save, Match,
                 "modules that are trained whole and are kept with the adapter, named as "
                 "in adapter.modules"),
  };
}

namespace config {

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

}  // namespace config
}  // namespace longhaul
