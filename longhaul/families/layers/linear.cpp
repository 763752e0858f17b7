#include "longhaul/families/layers/linear.h"

#include <utility>

namespace longhaul::families {

std::string lora_a(const Linear& layer) {
  const std::string& of = layer.adapter.value().a_of;
  return (of.empty() ? layer.name : of) + ".lora_A.weight";
}

std::string lora_b(const Linear& layer) { return layer.name + ".lora_B.weight"; }

void store_together(const std::string& name, std::initializer_list<Linear*> parts) {
  int64_t rows = 0, first = 0;
  for (const Linear* part : parts) rows += part->out;
  for (Linear* part : parts) {
    part->stored = StoredForm{name, false, rows, first, part->out, part->out};
    first += part->out;
  }
}

Feature add_linear(UnitMaker& unit, const Linear& layer, const Feature& x,
                   format::ShardSplit split) {
  const auto stored_as = [&](const char* end, bool transposed) {
    if (!layer.stored) return;
    StoredForm form = *layer.stored;
    form.name += end;
    form.transposed = transposed;
    unit.stored_as(std::move(form));
  };
  const Feature y =
      unit.matrix(layer.name + ".weight", layer.out, x, split, layer.stddev);
  stored_as(".weight", layer.stored && layer.stored->transposed);
  if (layer.adapter) unit.low_rank(layer.name, *layer.adapter, x, y, split);
  if (!layer.bias) return y;
  // A weight that is split by columns has a result that is summed over the ranks. Its
  // bias is added behind the sum, so that the bias is not split.
  unit.bias(layer.name + ".bias", layer.out,
            split.dim == 0 ? std::optional(split) : std::nullopt);
  stored_as(".bias", false);
  return y;
}

}  // namespace longhaul::families
