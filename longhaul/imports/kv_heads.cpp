#include "longhaul/imports/kv_heads.h"

#include <cmath>

#include "longhaul/base/error.h"

namespace longhaul::imports {
namespace {

// Copies that drifted apart, since each was rounded for itself, are still much closer to
// each other than different heads.
constexpr double kClearlyCloser = 0.25;

}  // namespace

int64_t head_dim_of(const families::Network& network) {
  const auto of = [](const families::Block& block) {
    return families::attention_of(block)->head_dim;
  };
  const int64_t first = of(network.blocks.at(0));
  for (const families::Block& block : network.blocks) {
    LH_ASSERT(of(block) == first, "a Llama's heads of {} and of {}", first, of(block));
  }
  return first;
}

KvHeads::KvHeads(const ForeignFiles& files, const families::Network& network,
                 const MergeOptions& options, MergeReport& report)
    : files_(files),
      network_(network),
      head_dim_(head_dim_of(network)),
      options_(options),
      report_(report) {}

int64_t KvHeads::key_slot(int64_t head, int64_t copy, KvOrder order) const {
  return order == KvOrder::Tiled ? copy * network_.key_heads + head
                                 : head * report_.kv_multiplier + copy;
}

Mosaic KvHeads::head(const Mosaic& tensor, int64_t index) const {
  return tensor.narrow(0, index * head_dim_, (index + 1) * head_dim_);
}

double KvHeads::distance(const Mosaic& keys, KvOrder order) const {
  const size_t elements =
      static_cast<size_t>(head_dim_ * keys.num_elements() / keys.shape()[0]);
  std::vector<float> first(elements);
  std::vector<float> other(elements);
  double sum = 0;
  for (int64_t h = 0; h < network_.key_heads; ++h) {
    head(keys, key_slot(h, 0, order))
        .read_all(files_, format::DType::F32, std::as_writable_bytes(std::span(first)));
    for (int64_t copy = 1; copy < report_.kv_multiplier; ++copy) {
      head(keys, key_slot(h, copy, order))
          .read_all(files_, format::DType::F32, std::as_writable_bytes(std::span(other)));
      for (size_t i = 0; i < elements; ++i) sum += std::fabs(first[i] - other[i]);
    }
  }
  return sum;
}

void KvHeads::choose_order(const Mosaic& keys, const std::string& name) {
  if (report_.kv_multiplier == 1 || report_.kv_order) return;
  if (network_.key_heads == 1) {  // with one head both orders are the same
    report_.kv_order = KvOrder::Repeated;
    report_.kv_order_found = true;
    return;
  }
  const double tiled = distance(keys, KvOrder::Tiled);
  const double repeated = distance(keys, KvOrder::Repeated);
  std::optional<KvOrder> found;
  if (tiled < kClearlyCloser * repeated) found = KvOrder::Tiled;
  if (repeated < kClearlyCloser * tiled) found = KvOrder::Repeated;
  std::optional<KvOrder> said = options_.kv_order;
  if (!said && options_.hardware == Hardware::Trn1) said = KvOrder::Tiled;
  if (found && said && *found != *said) {
    fail_input(
        "import",
        "{} disagrees with the files: the {} copies of each key head are stored {} ({})",
        options_.kv_order ? std::string("--kv-order ") + kv_order_name(*said)
                          : "--hardware trn1",
        report_.kv_multiplier, kv_order_name(*found), name);
  }
  if (!found && !said) {
    fail_input("import",
               "{}: each key head is held {} times, but the copies do not tell their "
               "order (distances {:.4g} and {:.4g}); give --hardware trn1, or --hardware "
               "trn2 with --kv-order tiled (by NxD's converter) or --kv-order repeated",
               name, report_.kv_multiplier, tiled, repeated);
  }
  report_.kv_order = found ? *found : *said;
  report_.kv_order_found = found.has_value();
  // Unless the key heads are tiled, the query heads lie in order already.
  if (report_.kv_order != KvOrder::Tiled) return;
  if (!options_.hardware) {
    fail_input("import",
               "{}: each key head is held {} times, in tiled order (A B A B); NxD moves "
               "the query heads to match for trn1 and leaves them in order for trn2. The "
               "files do not tell which; give --hardware trn1 or --hardware trn2 (the "
               "converter's --hw_backend)",
               name, report_.kv_multiplier);
  }
  report_.queries_moved = options_.hardware == Hardware::Trn1;
}

Mosaic KvHeads::key(const std::vector<Mosaic>& parts, const std::string& name) {
  Mosaic all = Mosaic::concatenate(parts, 0, name);
  const int64_t heads = network_.key_heads;
  const int64_t rows = heads * head_dim_;
  const int64_t found = all.shape().size() == 2 ? all.shape()[0] : 0;
  if (found == 0 || found % rows != 0) {
    fail_input("import",
               "{}: {} rows over all ranks are not a multiple of {} key heads of {}; "
               "check that this is the model's config.json",
               name, found, heads, head_dim_);
  }
  if (!known_) {
    report_.kv_multiplier = found / rows;
    if (network_.query_heads % (heads * report_.kv_multiplier) != 0) {
      fail_input("import", "{}: {} copies of {} key heads do not divide {} query heads",
                 name, report_.kv_multiplier, heads, network_.query_heads);
    }
    choose_order(all, name);
    known_ = true;
  }
  if (found / rows != report_.kv_multiplier) {
    fail_input("import",
               "{}: its key heads are held {} times, but those of other layers {} times",
               name, found / rows, report_.kv_multiplier);
  }
  if (report_.kv_multiplier == 1) return all;
  const KvOrder order = *report_.kv_order;
  Mosaic result({rows, all.shape()[1]}, all.dtype());
  for (int64_t h = 0; h < heads; ++h) {
    const Mosaic first = head(all, key_slot(h, 0, order));
    result.put(first, {0, 0}, first.shape(), {h * head_dim_, 0});
    for (int64_t copy = 1; options_.compare_copies && copy < report_.kv_multiplier;
         ++copy) {
      report_.count_copy(
          count_differences(files_, first, head(all, key_slot(h, copy, order))));
    }
  }
  return result;
}

Mosaic KvHeads::query(const std::vector<Mosaic>& parts, size_t dim,
                      const std::string& name) {
  Mosaic all = Mosaic::concatenate(parts, dim, name);
  const int64_t width = head_dim_;
  const int64_t wanted = network_.query_heads * width;
  if (all.shape().size() != 2 || all.shape()[dim] != wanted) {
    fail_input("import",
               "{}: shape {} over all ranks, expected {} in dim {} ({} query heads of "
               "{}); padded heads are not supported",
               name, format::describe_shape(all.shape()), wanted, dim,
               network_.query_heads, width);
  }
  if (report_.kv_multiplier == 1 || !report_.queries_moved) return all;
  // Copy c of key head k lies in slot c * heads + k, with the c-th of the head's groups
  // of query heads. In natural order this group is number k * copies + c.
  const int64_t heads = network_.key_heads;
  const int64_t copies = report_.kv_multiplier;
  const int64_t group = network_.query_heads / (heads * copies) * width;
  Mosaic result(all.shape(), all.dtype());
  std::vector<int64_t> extent = all.shape();
  extent[dim] = group;
  for (int64_t copy = 0; copy < copies; ++copy) {
    for (int64_t k = 0; k < heads; ++k) {
      std::vector<int64_t> from(2, 0);
      std::vector<int64_t> to(2, 0);
      from[dim] = (copy * heads + k) * group;
      to[dim] = (k * copies + copy) * group;
      result.put(all, from, extent, to);
    }
  }
  return result;
}

}  // namespace longhaul::imports
