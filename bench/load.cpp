// Saves and loads a made-up training state in any layout, without a model:
//   mpirun -n N bench_load save DIR LAYOUT LAYERS [weights]
//   mpirun -n M bench_load load DIR LAYOUT LAYERS [weights]
// LAYOUT is zero (flat parts of everything), tp (rows of some matrices, columns of
// others) or pp (layers). Loading checks the values. Rank 0 prints one JSON object:
// seconds from a barrier to the end on the slowest rank, and bytes over all ranks.
// bench_load.py compares it with torch.distributed.checkpoint.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/read/node_reader.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/checkpoint/write/background_saver.h"
#include "longhaul/comm/backend.h"
#include "longhaul/comm/hosts.h"

namespace {

using namespace longhaul;
using Clock = std::chrono::steady_clock;

/// A Llama's layers: 10.5 million parameters each, 126 MB of state.
constexpr int64_t kHidden = 1024;
constexpr int64_t kKeys = 256;
constexpr int64_t kFeedForward = 2560;

struct Matrix {
  const char* name;
  int64_t rows;
  int64_t columns;  ///< 0: a vector
  size_t dim;       ///< that tp cuts
};
constexpr Matrix kMatrices[] = {{"self_attn.q_proj", kHidden, kHidden, 0},
                                {"self_attn.k_proj", kKeys, kHidden, 0},
                                {"self_attn.v_proj", kKeys, kHidden, 0},
                                {"self_attn.o_proj", kHidden, kHidden, 1},
                                {"mlp.gate_proj", kFeedForward, kHidden, 0},
                                {"mlp.up_proj", kFeedForward, kHidden, 0},
                                {"mlp.down_proj", kHidden, kFeedForward, 1},
                                {"input_layernorm", kHidden, 0, 0},
                                {"post_attention_layernorm", kHidden, 0, 0}};
/// The small parameters around the layers.
constexpr int64_t kVocabulary = 8;
constexpr Matrix kAround[] = {{"model.embed_tokens", kVocabulary, kHidden, 0},
                              {"model.norm", kHidden, 0, 0},
                              {"lm_head", kVocabulary, kHidden, 0}};

/// Settings for an export of what was saved.
constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 8,
  "hidden_size": 1024, "intermediate_size": 2560, "num_hidden_layers": LAYERS,
  "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 8192,
  "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
  "initializer_range": 0.02, "tie_word_embeddings": false, "torch_dtype": "float32"
})";

/// What a rank holds of a tensor: elements [begin, end) of a box.
struct Share {
  std::string kind;
  format::TensorSlice box;
  int64_t begin = 0;
  int64_t end = 0;
};

format::TensorSlice cut(format::TensorSlice tensor, size_t dim, int part, int parts) {
  const int64_t whole = tensor.extent[dim];
  tensor.offset[dim] = whole * part / parts;
  tensor.extent[dim] = whole * (part + 1) / parts - tensor.offset[dim];
  return tensor;
}

/// Cuts all tensors, which lie side by side, into equal parts and leaves the part of
/// `rank`.
void cut_flat(std::vector<Share>& shares, int rank, int ranks) {
  int64_t total = 0;
  for (const Share& s : shares) total += s.end;
  const int64_t from = total * rank / ranks;
  const int64_t to = total * (rank + 1) / ranks;
  int64_t start = 0;
  for (Share& s : shares) {
    const int64_t size = s.end;
    s.begin = std::clamp(from - start, int64_t{0}, size);
    s.end = std::clamp(to - start, int64_t{0}, size);
    start += size;
  }
}

struct Options {
  std::string verb;
  fs::path dir;
  std::string layout;
  int64_t layers = 0;
  bool moments = true;
};

std::vector<Share> shares_of(const Options& options, const comm::Communicator& world) {
  const auto& [verb, dir, layout, layers, moments] = options;
  const bool saves = verb == "save";
  std::vector<Share> shares;
  std::vector<const char*> kinds = {checkpoint::kWeight};
  if (moments) kinds.insert(kinds.end(), {checkpoint::kExpAvg, checkpoint::kExpAvgSq});
  const auto add = [&](const char* kind, const std::string& name, const Matrix& m) {
    std::vector<int64_t> shape = {m.rows};
    if (m.columns > 0) shape.push_back(m.columns);
    format::TensorSlice box =
        format::TensorSlice::whole(name + ".weight", shape, format::DType::F32);
    if (layout == "tp" && m.columns > 0) {
      box = cut(box, m.dim, world.rank(), world.size());
    } else if (layout == "tp" && saves && world.rank() > 0) {
      return;  // a replica
    }
    const int64_t elements = box.num_elements();
    shares.push_back({kind, std::move(box), 0, elements});
  };
  for (const char* kind : kinds) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      const bool here = layer * world.size() / layers == world.rank();
      if (layout == "pp" && !here) continue;
      for (const Matrix& m : kMatrices) {
        add(kind, fmt::format("model.layers.{}.{}", layer, m.name), m);
      }
    }
    if (layout == "pp" && world.rank() > 0) continue;
    for (const Matrix& m : kAround) add(kind, m.name, m);
  }
  if (layout == "zero") cut_flat(shares, world.rank(), world.size());
  std::erase_if(shares, [](const Share& s) { return s.begin == s.end; });
  return shares;
}

/// Returns element number `index` of a whole tensor.
float value(const Share& share, int64_t index) {
  const auto salt = static_cast<int64_t>(share.kind.size() * 31 + share.box.name.size());
  return static_cast<float>((index * 7 + salt) % 65536);
}

/// Returns the number that an element of the box has in the whole tensor.
int64_t global_index(const format::TensorSlice& box, int64_t element) {
  if (box.extent.size() == 1) return box.offset[0] + element;
  return (box.offset[0] + element / box.extent[1]) * box.global_shape[1] + box.offset[1] +
         element % box.extent[1];
}

std::vector<std::vector<float>> memory_for(const std::vector<Share>& shares) {
  std::vector<std::vector<float>> memory;
  for (const Share& s : shares) memory.emplace_back(static_cast<size_t>(s.end - s.begin));
  return memory;
}

int64_t bytes_read_by_process() {
  std::ifstream file("/proc/self/io");
  std::string key;
  int64_t value_read = 0;
  while (file >> key >> value_read) {
    if (key == "rchar:") return value_read;
  }
  return 0;
}

void save(const fs::path& dir, int64_t layers, const std::vector<Share>& shares,
          comm::Communicator& world) {
  auto memory = memory_for(shares);
  checkpoint::Snapshot snapshot;
  snapshot.step = 1;
  for (size_t i = 0; i < shares.size(); ++i) {
    const Share& s = shares[i];
    for (int64_t e = s.begin; e < s.end; ++e) {
      memory[i][static_cast<size_t>(e - s.begin)] = value(s, global_index(s.box, e));
    }
    checkpoint::append_flat_range(s.kind, s.box, s.begin, s.end,
                                  std::as_bytes(std::span(memory[i])), snapshot.tensors);
  }
  snapshot.state = Json::object();
  std::string config = kConfig;
  config.replace(config.find("LAYERS"), 6, std::to_string(layers));
  snapshot.files = {{"config.json", {}, config}};
  checkpoint::SaverOptions options;
  options.dir = dir;
  options.read_back = false;
  const auto report = checkpoint::save_checkpoint(options, std::move(snapshot), world);
  if (world.rank() > 0) return;
  fmt::print("{}\n",
             json_text(Json{{"seconds", report.seconds}, {"bytes", report.bytes}}));
}

void load(const fs::path& dir, const std::vector<Share>& shares,
          comm::Communicator& world) {
  auto memory = memory_for(shares);
  const auto node = comm::split_by_host(world, "node");
  world.barrier_wait();
  const int64_t before = bytes_read_by_process();
  const auto start = Clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto reader = checkpoint::CheckpointReader::open(dir / "step_00000001", *node);
  double opened = seconds();
  std::vector<checkpoint::ReadRequest> requests;
  for (size_t i = 0; i < shares.size(); ++i) {
    const Share& s = shares[i];
    requests.push_back({s.kind, s.box, s.begin, s.end, format::DType::F32,
                        std::as_writable_bytes(std::span(memory[i]))});
  }
  auto report = checkpoint::read_together(reader, requests, *node);
  report.seconds = seconds();
  report = checkpoint::total(report, world);
  int64_t rchar = bytes_read_by_process() - before;
  world.all_reduce_wait({&rchar, 1, format::DType::I64}, comm::ReduceOp::Sum);
  world.all_reduce_wait({&opened, 1, format::DType::F64}, comm::ReduceOp::Max);
  for (size_t i = 0; i < shares.size(); ++i) {
    const Share& s = shares[i];
    for (int64_t e = s.begin; e < s.end; ++e) {
      LH_CHECK(
          memory[i][static_cast<size_t>(e - s.begin)] == value(s, global_index(s.box, e)),
          "bench", "{} of {}, element {}", s.kind, s.box.name, e);
    }
  }
  if (world.rank() > 0) return;
  fmt::print("{}\n", json_text(Json{{"seconds", report.seconds},
                                    {"open_seconds", opened},
                                    {"read", report.read},
                                    {"wanted", report.wanted},
                                    {"passed", report.passed},
                                    {"rchar", rchar}}));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) {
    fmt::print(stderr, "usage: bench_load save|load DIR zero|tp|pp LAYERS [weights]\n");
    return 78;
  }
  const Options options = {argv[1], argv[2], argv[3], std::atoll(argv[4]), argc == 5};
  std::shared_ptr<comm::Communicator> world;
  try {
    world = comm::world();
    const auto shares = shares_of(options, *world);
    if (options.verb == "save") {
      save(options.dir, options.layers, shares, *world);
    } else {
      load(options.dir, shares, *world);
    }
    comm::finish(*world);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_load: {}\n", error.what());
    if (world && world->size() > 1) world->abort(1);
    return 1;
  }
  return 0;
}
