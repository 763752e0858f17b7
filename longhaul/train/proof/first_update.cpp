#include "longhaul/train/proof/first_update.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/tensor/flat_pieces.h"
#include "longhaul/train/proof/first_update_rule.h"

namespace longhaul::train {
namespace {

constexpr int64_t kBlock = 16384;  ///< elements of a block, which are looked at together
constexpr int64_t kBlocks = 4;     ///< most blocks of a tensor's part on a rank

/// Returns the index of the first element of each block that is looked at. The blocks are
/// spread evenly over a rank's part of a tensor, which has `size` elements.
std::vector<int64_t> block_begins(int64_t size) {
  if (size <= kBlock) return {0};
  const int64_t count = std::min(kBlocks, (size + kBlock - 1) / kBlock);
  std::vector<int64_t> begins;
  begins.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) begins.push_back(i * (size - kBlock) / (count - 1));
  return begins;
}

/// The element that is furthest from what it should be.
struct Worst {
  double ratio = 0.0;  ///< share of what is allowed
  std::string text;
};

class FirstUpdate {
 public:
  FirstUpdate(const TrainingSession& session, const checkpoint::WeightsSource& source,
              double lr)
      : session_(session), lr_(lr), source_(source) {}

  /// Looks at the elements that this rank owns.
  void look() {
    const auto& buckets = session_.flat().buckets();
    for (size_t i = 0; i < buckets.size(); ++i) {
      for (const tensor::FlatPiece& piece :
           tensor::pieces_in(buckets[i], buckets[i].owned)) {
        look_at_padding(buckets[i], session_.optimizer().states()[i], piece);
        for (const int64_t begin : block_begins(piece.in_member.size())) {
          look_at(buckets[i], session_.optimizer().states()[i], piece, begin);
        }
      }
    }
  }

  Worst worst;
  int64_t elements = 0;  ///< number of elements that were looked at

 private:
  void look_at(const tensor::Bucket& bucket, const optim::BucketState& state,
               const tensor::FlatPiece& piece, int64_t begin) {
    const int64_t count = std::min(kBlock, piece.in_member.size() - begin);
    const int64_t first = piece.in_member.begin + begin;
    const auto part = [&](const at::Tensor& owned) {
      return session_.layout()
          .to_host(owned.narrow(0, piece.in_bucket - bucket.owned.begin + begin, count))
          .to(at::kDouble);
    };
    // The source is read in the dtype of the masters, since the masters began with these
    // values. The base of an adapter has weights alone, which must be those of the
    // source.
    const at::Tensor& owned =
        state.master.defined() ? state.master : bucket.owned_weights;
    const at::Tensor bytes = at::empty({count}, owned.scalar_type());
    source_.read_flat_range(piece.member->parameter->slice(), first, first + count,
                            tensor::from_scalar_type(bytes.scalar_type()),
                            tensor::bytes_of(bytes));
    const at::Tensor loaded = bytes.to(at::kDouble);
    const at::Tensor master = part(owned);
    const FirstUpdateRule rule(session_.config().optimizer, session_.machine().policy,
                               piece.member->kind, lr_,
                               session_.optimizer().trust_ratio(*piece.member));
    const at::Tensor moments =
        bucket.frozen ? at::zeros_like(loaded) : part(state.exp_avg);
    const at::Tensor ratio = rule.shares(master, loaded, moments);
    elements += count;
    const int64_t place = ratio.argmax().item<int64_t>();
    const double value = ratio[place].item<double>();
    if (value <= worst.ratio) return;
    const auto at = [&](const at::Tensor& t) { return t[place].item<double>(); };
    worst = {value, fmt::format("{}, element {} of {}: the master weight is {:.9g}, but "
                                "the source's {:.9g} and this update give {:.9g} (the "
                                "difference is {:.2g} times what rounding may do)",
                                piece.member->parameter->name(), first + place,
                                format::describe_slice(piece.member->parameter->slice()),
                                at(master), at(loaded), at(rule.masters(loaded, moments)),
                                value)};
  }

  /// Looks for a gradient of a padding row, which must have none unless the head is tied
  /// to its table.
  void look_at_padding(const tensor::Bucket& bucket, const optim::BucketState& state,
                       const tensor::FlatPiece& piece) {
    const tensor::Parameter& parameter = *piece.member->parameter;
    const auto row = parameter.padding_row();
    if (bucket.frozen || !row || session_.model().description.tied) return;
    const format::TensorSlice& slice = parameter.slice();
    const int64_t width = slice.num_elements() / slice.extent[0];
    const int64_t first = (*row - slice.offset[0]) * width;
    const int64_t begin = std::max(first, piece.in_member.begin);
    const int64_t end = std::min(first + width, piece.in_member.end);
    if (begin >= end) return;
    const int64_t at =
        piece.in_bucket - bucket.owned.begin + begin - piece.in_member.begin;
    const auto moment = session_.layout()
                            .to_host(state.exp_avg.narrow(0, at, end - begin).abs().max())
                            .item<double>();
    elements += end - begin;
    if (moment == 0.0) return;
    worst = {HUGE_VAL,
             fmt::format("{}, row {}, which is pad_token_id's row: its look-ups have a "
                         "gradient, and a moment of it is {:.9g}",
                         parameter.name(), *row, moment)};
  }

  const TrainingSession& session_;
  double lr_;
  const checkpoint::WeightsSource& source_;
};

/// Returns the worst element of all ranks. Collective.
Worst worst_of_all(comm::Communicator& world, const Worst& mine) {
  Worst worst;
  for (const std::string& report : world.gather_strings(json_text(
           Json{{"ratio", std::min(mine.ratio, 1e300)}, {"text", mine.text}}))) {
    const Json json = Json::parse(report);
    if (json["ratio"].get<double>() <= worst.ratio) continue;
    worst = {json["ratio"].get<double>(), json["text"].get<std::string>()};
  }
  return worst;
}

}  // namespace

void certify_first_update(TrainingSession& session, double lr, system::Logger& log) {
  const auto source = session.init();
  session.set_init(nullptr);
  const RunConfig& config = session.config();
  if (!source || !config.init.certificate) return;
  LH_CHECK(session.optimizer().updates() == 1, "certificate",
           "{} updates were made, not one", session.optimizer().updates());
  session.world().ledger().set("certificate", 1);
  FirstUpdate check(session, *source, lr);
  comm::on_all_ranks(session.world(), [&] { check.look(); });
  session.world().all_reduce_wait({&check.elements, 1, format::DType::I64},
                                  comm::ReduceOp::Sum);
  const Worst worst = worst_of_all(session.world(), check.worst);
  if (worst.ratio > 1.0) {
    fail_input("certificate",
               "the first update did not start from {}: {}; the run "
               "was stopped after step 1, and nothing was saved",
               source->source().path.string(), worst.text);
  }
  log.info(
      "certificate: the first update started from the loaded weights, to {:.2f} of what "
      "rounding may do ({} masters looked at)",
      worst.ratio, grouped(check.elements));
}

}  // namespace longhaul::train
