// The fields of [preference], and the rules of its settings.
#include "longhaul/config/codec.h"
#include "longhaul/config/fields.h"
#include "longhaul/config/rules.h"

namespace longhaul {
constexpr auto names_of(PreferenceLoss) {
  return std::array{"sigmoid",  "ipo",          "hinge", "robust",
                    "apo_zero", "sigmoid_norm", "simpo", "orpo"};
}

config::Fields fields_of(PreferenceSection& s) {
  using config::make_field;
  using enum ResumeClass;
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
