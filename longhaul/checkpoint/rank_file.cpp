#include "longhaul/checkpoint/rank_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "longhaul/format/safetensors.h"

namespace longhaul::checkpoint {
namespace {

std::string entry_name(const StateTensor& tensor) {
  return fmt::format("{}/{}/{}", tensor.kind, tensor.slice.name,
                     fmt::join(tensor.slice.offset, ","));
}

// Returns the tensors with wide dtypes first, so that every element lies at a multiple of
// its size.
std::vector<const StateTensor*> file_order(const std::vector<StateTensor>& tensors) {
  std::vector<const StateTensor*> order;
  for (const StateTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(
      order.begin(), order.end(), [](const StateTensor* a, const StateTensor* b) {
        return format::dtype_size(a->slice.dtype) > format::dtype_size(b->slice.dtype);
      });
  return order;
}

void check_block(const File& file, std::span<const std::byte> block, uint64_t index,
                 std::string_view hashes) {
  const std::string found = hash_hex(block);
  const std::string_view written = hashes.substr(index * kHashDigits, kHashDigits);
  if (found != written) {
    fail_input("checkpoint",
               "{}: block {} (bytes {} to {}) has hash {}, but hash {} was written; the "
               "file has changed since; use another checkpoint",
               file.path().string(), index, index * kHashBlockBytes,
               index * kHashBlockBytes + block.size(), found, written);
  }
}

}  // namespace

Json box_json(const std::string& kind, const format::TensorSlice& slice, uint64_t begin) {
  return {{"kind", kind},
          {"name", slice.name},
          {"dtype", format::dtype_name(slice.dtype)},
          {"shape", slice.global_shape},
          {"offset", slice.offset},
          {"extent", slice.extent},
          {"begin", begin}};
}

StoredBox parse_box(const JsonFields& fields, uint64_t data_size) {
  StoredBox box;
  box.kind = fields.get<std::string>("kind");
  box.slice.name = fields.get<std::string>("name");
  const auto dtype_text = fields.get<std::string>("dtype");
  const auto dtype = format::dtype_from_name(dtype_text);
  if (!dtype) {
    fields.fail(fmt::format("{}: unknown dtype '{}'", box.slice.name, dtype_text));
  }
  box.slice.dtype = *dtype;
  box.slice.global_shape = fields.shape("shape");
  box.slice.offset = fields.shape("offset");
  box.slice.extent = fields.shape("extent");
  box.begin = static_cast<uint64_t>(fields.count("begin"));
  uint64_t bytes = 0;
  uint64_t global = 0;
  bool good = box.slice.offset.size() == box.slice.global_shape.size() &&
              box.slice.extent.size() == box.slice.global_shape.size();
  for (size_t d = 0; good && d < box.slice.extent.size(); ++d) {
    good = box.slice.offset[d] <= box.slice.global_shape[d] &&
           box.slice.extent[d] <= box.slice.global_shape[d] - box.slice.offset[d];
  }
  good = good && format::tensor_bytes(box.slice.global_shape, *dtype, &global) &&
         format::tensor_bytes(box.slice.extent, *dtype, &bytes) &&
         box.begin <= data_size && bytes <= data_size - box.begin;
  if (!good) {
    fields.fail(
        fmt::format("the box of {} at byte {} does not lie in its tensor or its file "
                    "of {} bytes",
                    box.slice.name, box.begin, data_size));
  }
  return box;
}

std::string rank_file_stem(const std::string& prefix, int rank) {
  return fmt::format("{}rank_{:05}", prefix, rank);
}

std::string write_rank_data(const fs::path& dir, const std::string& stem, int rank,
                            const std::vector<StateTensor>& tensors,
                            const std::function<bool()>& cancelled) {
  const std::vector<const StateTensor*> order = file_order(tensors);
  format::SafetensorsPlan plan;
  for (const StateTensor* tensor : order) {
    tensor->slice.check();
    plan.add(entry_name(*tensor), tensor->slice.dtype, tensor->slice.extent);
  }
  const std::string data_name = stem + ".safetensors";
  format::SafetensorsWriter writer(dir / data_name, plan);
  Json boxes = Json::array();
  for (size_t i = 0; i < order.size(); ++i) {
    if (cancelled && cancelled()) return {};
    const format::TensorSlice& slice = order[i]->slice;
    writer.append(order[i]->bytes);
    boxes.push_back(
        box_json(order[i]->kind, slice, writer.data_start() + plan.entries[i].begin));
  }
  const std::vector<std::string> blocks = writer.finish();
  const Json sidecar = {{"format", "longhaul-rank"},
                        {"version", 1},
                        {"rank", rank},
                        {"file", data_name},
                        {"size", writer.file_size()},
                        {"block_bytes", kHashBlockBytes},
                        {"blocks", blocks},
                        {"boxes", std::move(boxes)}};
  return json_text(sidecar);
}

Sidecar Sidecar::parse(std::string_view text, uint64_t data_size,
                       const std::string& what) {
  const Json json = parse_json(text, what, 8);
  const JsonFields fields(json, "checkpoint", what);
  if (fields.get<std::string>("format") != "longhaul-rank" ||
      fields.count("version") != 1 ||
      fields.get<uint64_t>("block_bytes") != kHashBlockBytes) {
    fields.fail("this build cannot read this sidecar");
  }
  Sidecar sidecar;
  for (const Json& hash : fields.list("blocks")) {
    if (!hash.is_string() || hash.get_ref<const std::string&>().size() != kHashDigits) {
      fields.fail(fmt::format("a block's hash does not have {} digits", kHashDigits));
    }
    sidecar.block_hashes += hash.get_ref<const std::string&>();
  }
  const uint64_t blocks =
      data_size / kHashBlockBytes + (data_size % kHashBlockBytes != 0);
  if (sidecar.block_hashes.size() != blocks * kHashDigits) {
    fields.fail(fmt::format("{} block hashes for a file of {} blocks",
                            sidecar.block_hashes.size() / kHashDigits, blocks));
  }
  for (const Json& box : fields.list("boxes")) {
    sidecar.boxes.push_back(parse_box(fields.inside(box), data_size));
  }
  return sidecar;
}

void read_verified(const File& file, uint64_t file_size, std::string_view block_hashes,
                   uint64_t offset, std::span<std::byte> bytes) {
  std::vector<std::byte> scratch;
  while (!bytes.empty()) {
    const uint64_t index = offset / kHashBlockBytes;
    const uint64_t start = index * kHashBlockBytes;
    const uint64_t length = std::min(kHashBlockBytes, file_size - start);
    if (offset == start && bytes.size() >= length) {
      // Whole blocks are read straight to where they belong, many at once.
      uint64_t run = bytes.size() / kHashBlockBytes * kHashBlockBytes;
      if (run == 0) run = length;
      file.read_at(offset, bytes.first(run));
      for (uint64_t at = 0; at < run; at += kHashBlockBytes) {
        check_block(file, bytes.subspan(at, std::min(kHashBlockBytes, run - at)),
                    index + at / kHashBlockBytes, block_hashes);
      }
      bytes = bytes.subspan(run);
      offset += run;
      continue;
    }
    scratch.resize(length);
    file.read_at(start, scratch);
    check_block(file, scratch, index, block_hashes);
    const uint64_t inside = offset - start;
    const size_t n = std::min<uint64_t>(bytes.size(), length - inside);
    std::memcpy(bytes.data(), scratch.data() + inside, n);
    bytes = bytes.subspan(n);
    offset += n;
  }
}

void verify_blocks(const File& file, uint64_t file_size, std::string_view block_hashes,
                   const std::function<bool()>& cancelled) {
  std::vector<std::byte> buffer(std::min(file_size, 16 * kHashBlockBytes));
  for (uint64_t at = 0; at < file_size; at += buffer.size()) {
    if (cancelled && cancelled()) return;
    const uint64_t bytes = std::min<uint64_t>(buffer.size(), file_size - at);
    read_verified(file, file_size, block_hashes, at, std::span(buffer).first(bytes));
  }
}

}  // namespace longhaul::checkpoint
