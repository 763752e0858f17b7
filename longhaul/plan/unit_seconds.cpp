#include "longhaul/plan/unit_seconds.h"

namespace longhaul::plan {
namespace {

/// Returns the rows of each of a unit's experts in a micro batch, whose tokens choose
/// them equally often. The ranks of an ep group share the experts and bring their tokens.
double rows_of_expert(const UnitDescription& unit, const layout::Passes& passes,
                      const layout::LayoutDescription& layout) {
  return static_cast<double>(passes.tokens.inside * unit.forward.routed * layout.ep) /
         static_cast<double>(unit.forward.routes);
}

}  // namespace

ForwardSeconds forward_seconds(const UnitDescription& unit, const layout::Passes& passes,
                               const layout::LayoutDescription& layout, int64_t seq_len,
                               const Machine& machine) {
  const format::TpRank tp = layout.tensor.rank(0);
  const auto parts = static_cast<double>(layout.shape.tp);
  const auto tokens = static_cast<double>(passes.tokens.inside);
  const UnitWork& work = unit.work;
  ForwardForm plain = passes.form;
  plain.recompute = ForwardForm::Recompute::None;
  const double kept =
      static_cast<double>(unit.forward.kept(plain, passes.tokens, tp, true).total());
  ForwardSeconds seconds;
  seconds.products = 2.0 *
                     (work.products * tokens +
                      work.of_sequence * static_cast<double>(passes.tokens.sequences)) /
                     parts / machine.products;
  if (work.grouped > 0.0) {
    seconds.products += 2.0 * work.grouped * tokens / parts /
                        machine.grouped(rows_of_expert(unit, passes, layout));
  }
  if (work.frozen > 0.0) {
    seconds.frozen = seconds.products * work.frozen / work.all_products();
  }
  seconds.attention = 2.0 * work.attention * tokens * seen_on_average(work, seq_len) /
                      parts / machine.attention;
  seconds.moved =
      (kept + work.lookups * tokens * static_cast<double>(passes.form.compute_bytes)) /
      machine.memory;
  const auto recompute = passes.form_of(unit).recompute;
  if (unit.kind != UnitKind::Block || recompute == ForwardForm::Recompute::None) {
    return seconds;
  }
  seconds.again_attention = seconds.attention;
  if (recompute == ForwardForm::Recompute::Full) {
    seconds.again_products = seconds.products;
    seconds.again_moved = seconds.moved;
  }
  return seconds;
}

}  // namespace longhaul::plan
