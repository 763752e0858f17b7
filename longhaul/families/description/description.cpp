#include "longhaul/families/description/description.h"

#include <algorithm>
#include <map>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul {
namespace {

/// Operations that training does for each multiplication of the forward pass: a
/// multiplication and an addition in the forward pass, for the input's gradient, and for
/// the gradient of the weight or other factor.
constexpr double kTrainingOperations = 6.0;

const ParameterDescription& tied_embedding(const ModelDescription& model) {
  const auto& first = model.units.front().parameters;
  const auto found =
      std::ranges::find(first, model.tied->embedding, &ParameterDescription::name);
  LH_ASSERT(found != first.end(), "{} is no parameter of the first unit",
            model.tied->embedding);
  return *found;
}

void check_parameter(const ParameterDescription& parameter,
                     std::set<std::string>& names) {
  LH_ASSERT(!parameter.name.empty() && names.insert(parameter.name).second,
            "the parameter '{}' has no name, or one that stands twice", parameter.name);
  LH_ASSERT(!parameter.shape.empty() &&
                std::ranges::all_of(parameter.shape, [](int64_t n) { return n > 0; }),
            "{} has shape {}", parameter.name, format::describe_shape(parameter.shape));
  LH_ASSERT(!parameter.padding_row || (*parameter.padding_row >= 0 &&
                                       *parameter.padding_row < parameter.shape.front()),
            "{} has no row {}", parameter.name, *parameter.padding_row);
  if (!parameter.split || parameter.split->unit == format::ShardUnit::None) return;
  const auto dim = static_cast<size_t>(parameter.split->dim);
  LH_ASSERT(dim < parameter.shape.size(), "{} has no dim {}", parameter.name, dim);
  if (!parameter.split->by_heads()) return;
  const format::Heads& heads = parameter.split->heads;
  const bool of_queries = parameter.split->unit == format::ShardUnit::QueryHeads;
  LH_ASSERT(heads.key > 0 && heads.query % heads.key == 0 &&
                parameter.shape[dim] % (of_queries ? heads.query : heads.key) == 0,
            "{}: {} rows for {} query heads and {} key heads", parameter.name,
            parameter.shape[dim], heads.query, heads.key);
}

void check_stored(const ModelDescription& model) {
  std::map<std::string, std::vector<bool>> taken;  // rows of each stored tensor
  for (const ParameterDescription& p : model.parameters()) {
    if (!p.stored) continue;
    const StoredForm& form = *p.stored;
    LH_ASSERT(p.shape.size() <= 2 && form.rows > 0 && form.block > 0 &&
                  (!form.transposed || p.shape.size() == 2),
              "{} cannot be stored so", p.name);
    std::vector<bool>& rows = taken[form.name];
    rows.resize(static_cast<size_t>(form.rows));
    for (int64_t r = 0; r < p.shape[0]; ++r) {
      LH_ASSERT(form.row(r) < form.rows && !rows[static_cast<size_t>(form.row(r))],
                "row {} of {} is stored where another is, or nothing", r, p.name);
      rows[static_cast<size_t>(form.row(r))] = true;
    }
  }
  for (const auto& [name, rows] : taken) {
    LH_ASSERT(std::ranges::count(rows, false) == 0, "{} holds what nobody owns", name);
  }
}

bool is_split(const ParameterDescription& parameter) {
  return parameter.split && parameter.split->unit != format::ShardUnit::None;
}

/// Checks facts of a forward pass that a family could forget if it makes its units
/// without UnitMaker.
void check_forward(const UnitDescription& unit, size_t number) {
  const UnitForward& forward = unit.forward;
  const bool keeps = std::ranges::any_of(
      forward.tensors, [](const KeptTensor& t) { return !t.when.empty(); });
  // An embedding keeps nothing and is handed nothing, since its input is the batch's
  // tokens.
  LH_ASSERT(unit.kind == UnitKind::Embedding || keeps,
            "unit {} says nothing of what it keeps for its backward", number);
  LH_ASSERT(unit.kind == UnitKind::Embedding || forward.inputs > 0,
            "unit {} says nothing of what it is handed", number);
  LH_ASSERT(unit.kind == UnitKind::Embedding || !keeps ||
                forward.tensors.front().kind == KeptKind::Input,
            "what unit {} keeps does not begin with its input", number);
  for (const KeptTensor& tensor : forward.tensors) {
    LH_ASSERT(tensor.width > 0, "unit {} keeps a tensor of width {}", number,
              tensor.width);
  }
  const bool split = std::ranges::any_of(unit.parameters, is_split);
  LH_ASSERT(!split || forward.enters + forward.leaves > 0,
            "unit {} has split parameters, and neither enters nor leaves their region",
            number);
  LH_ASSERT((unit.kind == UnitKind::Head) == (forward.logits > 0),
            "unit {} has logits of width {}", number, forward.logits);
  LH_ASSERT((unit.work.attention > 0.0) == !forward.kept_positions.empty(),
            "unit {} has attention of {} multiplications with {} tensors of positions",
            number, unit.work.attention, forward.kept_positions.size());
  LH_ASSERT(unit.work.window > 0, "unit {} sees {} positions", number, unit.work.window);
}

void check_handed_on(const ModelDescription& model) {
  std::set<std::string> names;
  for (const PassedTensor& tensor : model.passed) {
    LH_ASSERT(tensor.width > 0 && names.insert(tensor.name).second,
              "'{}' of width {} is handed on", tensor.name, tensor.width);
  }
  LH_ASSERT(!model.passed.empty(), "nothing is handed on from unit to unit");
  const auto with_targets = [](const LossTerm& term) {
    return term.over == LossTerm::Over::Targets;
  };
  LH_ASSERT(std::ranges::any_of(model.losses, with_targets) &&
                std::ranges::is_partitioned(model.losses, with_targets),
            "terms of the loss with targets come first, and there is one at least");
  for (const LossTerm& term : model.losses) {
    LH_ASSERT(names.insert(term.name).second, "'{}' is a term of the loss twice",
              term.name);
  }
}

}  // namespace

format::TensorSlice StoredForm::whole(std::vector<int64_t> shape) const {
  shape[0] = rows;
  if (shape.size() > 1) shape[1] *= column_period;
  if (transposed) std::swap(shape[0], shape[1]);
  if (matrices > 0) shape = {matrices, rows / matrices, shape[1]};
  return format::TensorSlice::whole(name, shape, format::DType::F32);
}

int64_t ParameterDescription::num_elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

format::TensorSlice ParameterDescription::whole() const {
  return format::TensorSlice::whole(name, shape, format::DType::F32);
}

format::TensorSlice ParameterDescription::stored_whole() const {
  return stored ? stored->whole(shape) : whole();
}

int64_t UnitDescription::num_parameters() const {
  int64_t sum = 0;
  for (const ParameterDescription& p : parameters) sum += p.num_elements();
  return sum;
}

int64_t ModelDescription::num_blocks() const {
  return std::ranges::count(units, UnitKind::Block, &UnitDescription::kind);
}

std::vector<std::string> ModelDescription::losses_with_targets() const {
  std::vector<std::string> names;
  for (const LossTerm& term : losses) {
    if (term.over == LossTerm::Over::Targets) names.push_back(term.name);
  }
  return names;
}

std::optional<int64_t> ModelDescription::padding_row() const {
  for (const ParameterDescription& p : units.front().parameters) {
    if (p.padding_row) return p.padding_row;
  }
  return std::nullopt;
}

bool ModelDescription::is_causal() const {
  return std::ranges::all_of(
      units, [](const UnitDescription& unit) { return unit.work.causal; });
}

int64_t ModelDescription::num_parameters() const {
  int64_t sum = 0;
  for (const UnitDescription& unit : units) sum += unit.num_parameters();
  return sum;
}

int64_t ModelDescription::num_parameters_without_embedding() const {
  int64_t rest = num_parameters();
  for (const ParameterDescription& p : units.front().parameters) {
    const bool is_table = p.shape.size() == 2;  // a norm's have one dim
    if (is_table) rest -= p.num_elements();
  }
  return rest;
}

int64_t ModelDescription::num_active_parameters() const {
  int64_t rest = num_parameters();
  for (const UnitDescription& unit : units) {
    rest -= static_cast<int64_t>(unit.work.unused);
  }
  return rest;
}

std::string ModelDescription::parameters_text() const {
  const int64_t all = num_parameters(), active = num_active_parameters();
  std::string text = counted(all, "parameter");
  if (active < all) text += ", " + grouped(active) + " of them active for a token";
  return text;
}

std::vector<format::TensorSlice> ModelDescription::tensors() const {
  std::vector<format::TensorSlice> all;
  for (const ParameterDescription& p : parameters()) all.push_back(p.whole());
  return all;
}

std::vector<format::TensorSlice> ModelDescription::saved_tensors() const {
  std::vector<format::TensorSlice> all;
  for (const ParameterDescription& p : parameters()) {
    if (p.trained) all.push_back(p.whole());
  }
  return all;
}

std::vector<std::string> ModelDescription::names() const {
  std::vector<std::string> all;
  for (const ParameterDescription& p : parameters()) all.push_back(p.name);
  return all;
}

std::vector<format::TensorSlice> ModelDescription::stored_tensors() const {
  std::vector<format::TensorSlice> all;
  std::set<std::string> names;
  for (const ParameterDescription& p : parameters()) {
    format::TensorSlice tensor = p.stored_whole();
    if (names.insert(tensor.name).second) all.push_back(std::move(tensor));
  }
  return all;
}

std::vector<std::string> ModelDescription::spare_names() const {
  std::vector<std::string> spare = buffers;
  if (tied) spare.push_back(tied->head);
  return spare;
}

StageSpec ModelDescription::whole() const { return {0, num_blocks(), true, true}; }

bool is_in_stage(const UnitDescription& unit, const StageSpec& spec) {
  if (unit.kind == UnitKind::Embedding) return spec.embedding;
  if (unit.kind == UnitKind::Head) return spec.head;
  return unit.layer >= spec.first_layer && unit.layer < spec.end_layer;
}

std::vector<UnitDescription> ModelDescription::stage(const StageSpec& spec) const {
  std::vector<UnitDescription> found;
  for (const UnitDescription& unit : units) {
    if (is_in_stage(unit, spec)) found.push_back(unit);
  }
  if (const ParameterDescription* copy = tied_copy(spec)) {
    found.back().parameters.push_back(*copy);
  }
  return found;
}

const ParameterDescription* ModelDescription::tied_copy(const StageSpec& spec) const {
  return spec.head && !spec.embedding && tied ? &tied_embedding(*this) : nullptr;
}

FlopsPerToken ModelDescription::flops_per_token(int64_t seq_len) const {
  double products = 0.0;
  double frozen = 0.0;  // a third of what these cost, the weights' gradients, is left out
  double full = 0.0;
  double causal = 0.0;
  for (const UnitDescription& unit : units) {
    const UnitWork& work = unit.work;
    products += work.all_products() + work.of_sequence / static_cast<double>(seq_len);
    frozen += work.frozen;
    full += work.attention * static_cast<double>(std::min(work.window, seq_len));
    causal += work.attention * seen_on_average(work, seq_len);
  }
  products -= frozen / 3.0;
  return {kTrainingOperations * (products + full),
          kTrainingOperations * (products + causal), kTrainingOperations * products};
}

double seen_on_average(const UnitWork& work, int64_t seq_len) {
  if (!work.causal) return static_cast<double>(seq_len);
  const auto window = static_cast<double>(std::min(work.window, seq_len));
  return window - window * window / (2.0 * static_cast<double>(seq_len));
}

double forward_cost(const UnitDescription& unit, int64_t seq_len) {
  const UnitWork& work = unit.work;
  return work.all_products() + work.of_sequence / static_cast<double>(seq_len) +
         work.attention * seen_on_average(work, seq_len) + work.lookups;
}

void check_description(const ModelDescription& model) {
  LH_ASSERT(model.units.size() > 2, "{} units", model.units.size());
  check_handed_on(model);
  LH_ASSERT(model.max_positions > 0, "sequences of {} positions", model.max_positions);
  std::set<std::string> names;
  for (size_t i = 0; i < model.units.size(); ++i) {
    const UnitDescription& unit = model.units[i];
    const UnitKind kind = i == 0                        ? UnitKind::Embedding
                          : i + 1 == model.units.size() ? UnitKind::Head
                                                        : UnitKind::Block;
    LH_ASSERT(unit.kind == kind, "unit {} stands out of order", i);
    LH_ASSERT(kind != UnitKind::Block || unit.layer == static_cast<int64_t>(i) - 1,
              "unit {} is block {}", i, unit.layer);
    LH_ASSERT(unit.work.all_products() + unit.work.lookups > 0.0, "unit {} has no work",
              i);
    check_forward(unit, i);
    for (const ParameterDescription& p : unit.parameters) check_parameter(p, names);
  }
  if (model.tied) tied_embedding(model);
  check_stored(model);
}

}  // namespace longhaul
