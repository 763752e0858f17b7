#include "longhaul/families/layers/embedding.h"

namespace longhaul::families {

void add_embedding(UnitMaker& unit, const Embedding& embedding, int64_t width) {
  unit.table(embedding.tokens.name + ".weight", embedding.tokens.rows, width,
             embedding.padding_row);
  if (embedding.positions) {
    unit.table(embedding.positions->name + ".weight", embedding.positions->rows, width);
  }
  unit.leave();
  if (embedding.types) {
    unit.whole_table(embedding.types->name + ".weight", embedding.types->rows, width);
  }
  if (embedding.norm) add_norm(unit, *embedding.norm, unit.looked_up(width));
}

}  // namespace longhaul::families
