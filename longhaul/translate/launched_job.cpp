#include "longhaul/translate/launched_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/run/files.h"

namespace longhaul::translate {
namespace {

using config::Value;

constexpr const char* kTheirDefault = "their default";

[[noreturn]] void fail_value(const Said& said, const std::string& text,
                             const char* expected) {
  throw InputError("flags",
                   one_line(fmt::format("{}{} = {}: expected {}",
                                        said.where.empty() ? "" : said.where + ": ",
                                        said.shown, text, expected)));
}

template <class T, class Read>
Known<T> known(const Job& job, const std::string& name, std::optional<T> otherwise,
               Read read) {
  const Said* const said = job.find(name);
  const std::string& hidden = job.draft().hidden();
  if (said == nullptr && otherwise && !hidden.empty()) {
    return {
        std::nullopt,
        fmt::format("{} may say {}; without it, theirs is {}", hidden, name, *otherwise),
        true};
  }
  if (said == nullptr) return {std::move(otherwise), kTheirDefault, false};
  if (said->variable) return {std::nullopt, not_looked_up(*said), true};
  return {read(*said), said->shown, true};
}

bool has_word_for(dictionary::OtherSystem system, std::string_view key) {
  return std::ranges::any_of(dictionary::words_of(system),
                             [&](const dictionary::OtherWord& word) {
                               return word.keys.find(key) != std::string_view::npos;
                             });
}

template <class T>
void override_known(Draft& draft, const std::string& field, const std::string& name,
                    const Known<T>& number) {
  if (number.value) {
    draft.override_field(field, *number.value,
                         number.given ? number.from : name + ": " + number.from);
  } else if (number.given) {
    draft.leave("{}: set model.override's {}", number.from, field);
  }
}

}  // namespace

std::string not_looked_up(const Said& said) {
  return fmt::format("{}: {}", said.as_written(),
                     said.choices.empty()
                         ? "a variable of the shell, which is not looked up"
                         : said.choices);
}

std::string Said::as_written() const {
  const bool flag = shown.starts_with('-');
  if (values.empty()) return null ? shown + ": null" : shown;
  return fmt::format("{}{}{}", shown, flag ? " " : " = ", fmt::join(values, " "));
}

int64_t whole_of(const Said& said, const std::string& text) {
  if (const auto number = whole_number<int64_t>(text)) return *number;
  const auto real = whole_number<double>(text);
  if (!real || *real != std::floor(*real) || std::abs(*real) > 1e15) {
    fail_value(said, text, "a whole number");
  }
  return static_cast<int64_t>(*real);
}

double real_of(const Said& said, const std::string& text) {
  const auto number = whole_number<double>(text);
  if (!number || !std::isfinite(*number)) fail_value(said, text, "a number");
  return *number;
}

bool truth_of(const Said& said) {
  if (said.values.empty()) return true;  // a flag alone
  std::string text = dictionary::word_name(said.text());
  if (text == "true" || text == "yes" || text == "on" || text == "y" || text == "auto" ||
      text == "full")
    return true;
  if (text == "false" || text == "no" || text == "off" || text == "n" || text == "none")
    return false;
  const auto number = whole_number<int64_t>(text);
  if (!number) fail_value(said, said.text(), "true or false, or 1 or 0");
  return *number > 0;
}

Value typed(const Said& said, const std::string& type) {
  if (type == "boolean") return {truth_of(said), ""};
  if (said.values.empty()) fail_value(said, "(nothing)", "a value");
  if (type == "integer") return {whole_of(said, said.text()), ""};
  if (type == "number") return {real_of(said, said.text()), ""};
  return {said.text(), ""};
}

void Job::leave(const std::string& name, const std::string& why) const {
  leave_marked(name, why, "");
}

void Job::leave_marked(const std::string& name, const std::string& why,
                       const char* mark) const {
  for (const Said* const said : all(name)) {
    draft_.leave("{}{}: {}", mark, said->as_written(), why);
    left_.insert(name);
  }
}

const Said* Job::find(const std::string& name) const {
  const std::vector<const Said*> found = all(name);
  return found.empty() ? nullptr : found.back();
}

std::vector<const Said*> Job::all(const std::string& name) const {
  read_.insert(name);
  std::vector<const Said*> found;
  for (const Said& said : source_.said) {
    if (said.name == name && !said.null) found.push_back(&said);
  }
  return found;
}

const Said* Job::find_any(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (const Said* const said = find(name)) return said;
  }
  return nullptr;
}

Known<int64_t> Job::whole(const std::string& name,
                          std::optional<int64_t> otherwise) const {
  return known<int64_t>(*this, name, otherwise,
                        [](const Said& said) { return whole_of(said, said.text()); });
}

Known<double> Job::real(const std::string& name, std::optional<double> otherwise) const {
  return known<double>(*this, name, otherwise,
                       [](const Said& said) { return real_of(said, said.text()); });
}

Known<bool> Job::on(const std::string& name, std::optional<bool> otherwise) const {
  return known<bool>(*this, name, otherwise,
                     [](const Said& said) { return truth_of(said); });
}

Known<std::string> Job::text(const std::string& name,
                             std::optional<std::string> otherwise) const {
  return known<std::string>(*this, name, std::move(otherwise),
                            [](const Said& said) { return said.text(); });
}

void Job::ask(const std::string& name, const std::string& key,
              const std::string& what) const {
  if (const Said* const said = find(name)) draft_.fill(key, said->as_written() + what);
}

Known<int64_t> Job::replicas() const {
  for (const char* key : {"parallel.tp", "parallel.pp", "parallel.cp"}) {
    const auto line = draft_.lines().find(key);
    const bool given = line != draft_.lines().end();
    const bool hidden = !draft_.hidden().empty() && has_word_for(source_.system, key);
    if (given ? line->second.to_fill : hidden) {
      return {std::nullopt, fmt::format("{} is not known here", key), true};
    }
  }
  const int64_t tp = draft_.whole("parallel.tp", 1);
  const int64_t pp = draft_.whole("parallel.pp", 1);
  const int64_t cp = draft_.whole("parallel.cp", 1);
  const std::string split = fmt::format("(tp {} * pp {} * cp {})", tp, pp, cp);
  if (!source_.world.ranks) {
    return {
        std::nullopt,
        fmt::format("ranks / {}; the number of ranks is not given (--ranks N gives it)",
                    split),
        true};
  }
  const auto model = checked_product(tp, pp);
  const auto ranks_of_model = model ? checked_product(*model, cp) : std::nullopt;
  if (!ranks_of_model || *ranks_of_model < 1 ||
      *source_.world.ranks % *ranks_of_model != 0) {
    fail_input("flags",
               "{} ranks ({}) do not divide into model replicas of {} ranks; give the "
               "number of ranks with --ranks N",
               *source_.world.ranks, source_.world.from, split);
  }
  return {*source_.world.ranks / *ranks_of_model,
          fmt::format("{} ranks / {}", *source_.world.ranks, split), true};
}

void Job::put_global_size(const Known<int64_t>& per_replica) const {
  const Known<int64_t> dp = replicas();
  if (per_replica.value && dp.value) {
    const auto product = checked_product(*per_replica.value, *dp.value);
    if (!product) throw InputError("flags", "the batch is larger than a number can hold");
    draft_.put("batch.global_size", *product,
               fmt::format("{} {} * {} replicas ({})", per_replica.from,
                           *per_replica.value, *dp.value, dp.from));
    return;
  }
  const std::string sequences =
      per_replica.value ? fmt::format("{} ({})", *per_replica.value, per_replica.from)
                        : per_replica.from;
  draft_.fill("batch.global_size",
              "sequences of all replicas together: {}, times the replicas{}", sequences,
              dp.value ? fmt::format(", {}", *dp.value) : fmt::format(", {}", dp.from));
}

void Job::put_global_size(const Known<int64_t>& micro, std::string_view micro_word,
                          const Known<int64_t>& steps,
                          std::string_view steps_word) const {
  Known<int64_t> replica{std::nullopt, micro.value ? steps.from : micro.from, true};
  if (micro.value && steps.value) {
    const auto product = checked_product(*micro.value, *steps.value);
    if (!product) throw InputError("flags", "the batch is larger than a number can hold");
    replica.value = product;
    replica.from = steps_word.empty()
                       ? std::string(micro_word)
                       : fmt::format("{} {} * {} {} =", micro_word, *micro.value,
                                     steps_word, *steps.value);
  }
  put_global_size(replica);
}

void Job::put_betas(double beta1, double beta2) const {
  draft_.put_default("optimizer.betas", config::Array{{beta1, ""}, {beta2, ""}});
}

void Job::put_betas(const std::string& name1, const std::string& name2, double beta1,
                    double beta2) const {
  const Known<double> first = real(name1, beta1);
  const Known<double> second = real(name2, beta2);
  if (!first.given && !second.given) return put_betas(beta1, beta2);
  if (!first.value || !second.value) {
    return draft_.fill("optimizer.betas", first.value ? second.from : first.from);
  }
  draft_.put("optimizer.betas", config::Array{{*first.value, ""}, {*second.value, ""}},
             fmt::format("{}, {}", first.from, second.from));
}

void Job::put_tensorboard(const std::string& name) const {
  const Said* const said = find(name);
  if (said == nullptr) return;
  if (said->variable || said->text().empty()) {
    return leave(name, "event files lie in run.dir, or where log.tensorboard_dir says");
  }
  draft_.put("log.tensorboard_dir", said->text(), said->shown);
  if (said->values.size() > 1) {
    draft_.leave("{}: event files lie in the first directory alone", said->as_written());
  }
}

void Job::put_results(const std::string& name, const char* form) const {
  const Said* const said = find(name);
  if (said == nullptr) return;
  draft_.put("log.results", form,
             fmt::format("{}: {} in run.dir has their form", said->as_written(),
                         run::kResultsFile));
}

void Job::override_whole(const std::string& name, const std::string& field,
                         std::optional<int64_t> otherwise) const {
  override_known(draft_, field, name, whole(name, otherwise));
}

void Job::override_real(const std::string& name, const std::string& field,
                        std::optional<double> otherwise) const {
  override_known(draft_, field, name, real(name, otherwise));
}

}  // namespace longhaul::translate
