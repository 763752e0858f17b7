#include "longhaul/checkpoint/read/node_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "tests/support/checkpoint_model.h"
#include "tests/support/rank_threads.h"

namespace longhaul::checkpoint {
namespace {

using testing::run_ranks;
using testing::save_now;
using testing::TempDir;
using testing::write_file;

/// Returns tensors of several blocks each, and small tensors that share a block.
std::vector<format::TensorSlice> model() {
  return {format::TensorSlice::whole("column.weight", {640, 1500}, format::DType::F32),
          format::TensorSlice::whole("experts.weight", {3, 200, 700}, format::DType::F32),
          format::TensorSlice::whole("norm.weight", {33}, format::DType::F32),
          format::TensorSlice::whole("row.weight", {1501, 803}, format::DType::F32),
          format::TensorSlice::whole("scalar", {}, format::DType::F32)};
}

uint64_t model_bytes() {
  uint64_t bytes = 0;
  for (const format::TensorSlice& t : model())
    bytes += 4 * static_cast<uint64_t>(t.num_elements());
  return bytes;
}

std::vector<float> values_of(const format::TensorSlice& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  std::iota(values.begin(), values.end(), static_cast<float>(tensor.name.size()));
  return values;
}

/// Returns a part of a dim, with parts as even as possible.
format::TensorSlice cut(const format::TensorSlice& tensor, size_t dim, int part,
                        int parts) {
  format::TensorSlice box = tensor;
  box.offset[dim] = tensor.extent[dim] * part / parts;
  box.extent[dim] = tensor.extent[dim] * (part + 1) / parts - box.offset[dim];
  return box;
}

/// How ranks hold the model.
enum class Cut { Rows, Columns, Flat, All };

/// The part of a tensor on a rank: a box and a range of its elements.
struct Share {
  format::TensorSlice box;
  int64_t begin = 0;
  int64_t end = 0;
};

Share share_of(const format::TensorSlice& tensor, Cut kind, int rank, int ranks) {
  const size_t dims = tensor.extent.size();
  Share share{tensor, 0, tensor.num_elements()};
  if (kind == Cut::Flat) {
    // The parts are uneven: the first rank has least.
    const int64_t whole = ranks * (ranks + 1) / 2;
    share.begin = tensor.num_elements() * (rank * (rank + 1) / 2) / whole;
    share.end = tensor.num_elements() * ((rank + 1) * (rank + 2) / 2) / whole;
  } else if (kind != Cut::All && dims > 0) {
    share.box = cut(tensor, kind == Cut::Rows ? 0 : dims - 1, rank, ranks);
    share.end = share.box.num_elements();
  } else if (kind != Cut::All) {
    share.end = rank == 0 ? 1 : 0;
  }
  return share;
}

std::vector<float> expected(const Share& share) {
  const format::TensorSlice whole = format::TensorSlice::whole(
      share.box.name, share.box.global_shape, format::DType::F32);
  std::vector<float> part(static_cast<size_t>(share.box.num_elements()));
  const std::vector<float> all = values_of(whole);
  format::copy_box(whole, std::as_bytes(std::span(all)), share.box,
                   std::as_writable_bytes(std::span(part)));
  return {part.begin() + share.begin, part.begin() + share.end};
}

fs::path save_model(const fs::path& dir, Cut kind, int ranks) {
  run_ranks(ranks, [&](comm::Communicator& world) {
    std::vector<std::vector<float>> values;
    std::vector<StateTensor> mine;
    for (const format::TensorSlice& tensor : model()) {
      const Share share = share_of(tensor, kind, world.rank(), ranks);
      values.push_back(expected(share));
      append_flat_range(kWeight, share.box, share.begin, share.end,
                        std::as_bytes(std::span(values.back())), mine);
    }
    save_now(dir, 1, 1, mine, world, {}, testing::side_files());
  });
  return dir / "step_00000001";
}

template <typename T>
struct Output {
  Share share;
  std::vector<T> values;
};

template <typename T>
std::vector<ReadRequest> requests_of(std::vector<Output<T>>& outputs,
                                     format::DType dtype) {
  std::vector<ReadRequest> requests;
  for (Output<T>& o : outputs) {
    requests.push_back({kWeight, o.share.box, o.share.begin, o.share.end, dtype,
                        std::as_writable_bytes(std::span(o.values))});
  }
  return requests;
}

template <typename T>
std::vector<Output<T>> outputs_of(Cut kind, int rank, int ranks) {
  std::vector<Output<T>> outputs;
  for (const format::TensorSlice& tensor : model()) {
    const Share share = share_of(tensor, kind, rank, ranks);
    outputs.push_back(
        {share, std::vector<T>(static_cast<size_t>(share.end - share.begin))});
  }
  return outputs;
}

/// Reads the whole model in another layout and checks every value. Returns the sums of
/// all ranks.
ReadReport read_model(const fs::path& step, Cut kind, int ranks) {
  ReadReport sum;
  run_ranks(ranks, [&](comm::Communicator& node) {
    const CheckpointReader reader = CheckpointReader::open(step, node);
    auto outputs = outputs_of<float>(kind, node.rank(), ranks);
    const ReadReport report = total(
        read_together(reader, requests_of(outputs, format::DType::F32), node), node);
    for (const Output<float>& o : outputs) {
      EXPECT_TRUE(o.values == expected(o.share)) << format::describe_slice(o.share.box);
    }
    if (node.rank() == 0) sum = report;
  });
  return sum;
}

uint64_t data_bytes(const fs::path& step) {
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(step)) {
    if (file.path().extension() == ".safetensors") bytes += file.file_size();
  }
  return bytes;
}

TEST(NodeReader, AnyLayoutReadsAnyOtherAndEachByteOnce) {
  constexpr std::array kCuts = {Cut::Rows, Cut::Columns, Cut::Flat, Cut::All};
  for (const Cut written : {Cut::Rows, Cut::Columns, Cut::Flat}) {
    for (const int writers : {1, 3}) {
      const TempDir dir;
      const fs::path step = save_model(dir.path(), written, writers);
      for (const Cut read : kCuts) {
        for (const int readers : {1, 2, 4}) {
          const ReadReport report = read_model(step, read, readers);
          EXPECT_LE(report.read, data_bytes(step));
          EXPECT_GE(report.read, model_bytes());
          const bool all = read == Cut::All;
          EXPECT_EQ(report.wanted,
                    model_bytes() * static_cast<uint64_t>(all ? readers : 1));
          // Ranks that each want the whole model get from others all bytes that they do
          // not read themselves. Ranks that want parts get less than one model in all.
          if (all || readers == 1) {
            EXPECT_EQ(report.passed, model_bytes() * static_cast<uint64_t>(readers - 1));
          } else {
            EXPECT_LT(report.passed, model_bytes());
          }
        }
      }
    }
  }
}

TEST(NodeReader, ReplicasReadEachBlockOnceAndShareTheWork) {
  const TempDir dir;
  const fs::path step = save_model(dir.path(), Cut::Flat, 2);
  std::array<uint64_t, 4> read{};
  run_ranks(4, [&](comm::Communicator& node) {
    const CheckpointReader reader = CheckpointReader::open(step, node);
    auto outputs = outputs_of<float>(Cut::All, node.rank(), 4);
    const ReadReport report =
        read_together(reader, requests_of(outputs, format::DType::F32), node);
    read[static_cast<size_t>(node.rank())] = report.read;
  });
  EXPECT_EQ(std::accumulate(read.begin(), read.end(), uint64_t{0}), data_bytes(step));
  for (const uint64_t bytes : read) EXPECT_GE(bytes, 2 * kHashBlockBytes);
}

TEST(NodeReader, ValuesAreConvertedOnTheWay) {
  const TempDir dir;
  const fs::path step = save_model(dir.path(), Cut::Rows, 2);
  for (const Cut kind : {Cut::Columns, Cut::All}) {
    run_ranks(3, [&](comm::Communicator& node) {
      const CheckpointReader reader = CheckpointReader::open(step, node);
      auto outputs = outputs_of<uint16_t>(kind, node.rank(), 3);
      read_together(reader, requests_of(outputs, format::DType::BF16), node);
      for (const Output<uint16_t>& o : outputs) {
        const std::vector<float> exact = expected(o.share);
        for (size_t i = 0; i < exact.size(); ++i) {
          ASSERT_EQ(o.values[i], format::float_to_bf16(exact[i]))
              << o.share.box.name << " " << i;
        }
      }
    });
  }
}

TEST(NodeReader, RanksMayWantNothingOrTheSameTwice) {
  const TempDir dir;
  const fs::path step = save_model(dir.path(), Cut::Flat, 2);
  run_ranks(3, [&](comm::Communicator& node) {
    const CheckpointReader reader = CheckpointReader::open(step, node);
    std::vector<Output<float>> outputs;
    for (int i = 0; i < node.rank(); ++i) {
      for (auto& o : outputs_of<float>(Cut::Rows, 1, 2)) outputs.push_back(std::move(o));
    }
    read_together(reader, requests_of(outputs, format::DType::F32), node);
    for (const Output<float>& o : outputs) {
      EXPECT_TRUE(o.values == expected(o.share)) << format::describe_slice(o.share.box);
    }
    EXPECT_EQ(read_together(reader, {}, node).read, 0U);
  });
}

void flip_byte(const fs::path& file, uint64_t offset) {
  std::string text = read_text(file);
  text[offset] = static_cast<char>(text[offset] ^ 1);
  write_file(file, text);
}

TEST(NodeReader, ADamagedBlockIsTheSameErrorOnAllRanksWhoCanThenGoOn) {
  const TempDir dir;
  for (const Cut kind : {Cut::All, Cut::Rows}) {
    const fs::path good = save_model(dir / "good", Cut::Flat, 2);
    const fs::path bad = save_model(dir / "bad", Cut::Flat, 2);
    const fs::path file = bad / "a1_rank_00001.safetensors";
    const uint64_t offset = 3 * kHashBlockBytes + 17;
    flip_byte(file, offset);
    std::array<std::string, 3> messages;
    run_ranks(3, [&](comm::Communicator& node) {
      auto outputs = outputs_of<float>(kind, node.rank(), 3);
      const auto requests = requests_of(outputs, format::DType::F32);
      const CheckpointReader reader = CheckpointReader::open(bad, node);
      messages[static_cast<size_t>(node.rank())] =
          message_of<InputError>([&] { read_together(reader, requests, node); });
      // Nothing is under way after the error: the same ranks can read the next older
      // checkpoint.
      read_together(CheckpointReader::open(good, node), requests, node);
      for (const Output<float>& o : outputs) {
        EXPECT_TRUE(o.values == expected(o.share)) << format::describe_slice(o.share.box);
      }
    });
    EXPECT_HAS(messages[0], file.string());
    EXPECT_HAS(messages[0], "block 3 (bytes 3145728 to");
    EXPECT_EQ(messages[0], messages[1]);
    EXPECT_EQ(messages[0], messages[2]);
    fs::remove_all(dir / "good");
    fs::remove_all(dir / "bad");
  }
}

TEST(NodeReader, AFileThatGoesAwayIsTheSameErrorOnAllRanks) {
  const TempDir dir;
  const fs::path step = save_model(dir.path(), Cut::Rows, 2);
  std::array<std::string, 2> messages;
  run_ranks(2, [&](comm::Communicator& node) {
    const CheckpointReader reader = CheckpointReader::open(step, node);
    node.barrier_wait();
    if (node.rank() == 0) fs::remove(step / "a1_rank_00000.safetensors");
    node.barrier_wait();
    auto outputs = outputs_of<float>(Cut::Rows, node.rank(), 2);
    messages[static_cast<size_t>(node.rank())] = message_of<InputError>(
        [&] { read_together(reader, requests_of(outputs, format::DType::F32), node); });
  });
  EXPECT_HAS(messages[0], "a1_rank_00000.safetensors: open failed");
  EXPECT_EQ(messages[0], messages[1]);
}

TEST(NodeReader, ARequestThatDoesNotFitIsTheSameErrorOnAllRanks) {
  const TempDir dir;
  const fs::path step = save_model(dir.path(), Cut::Rows, 1);
  std::array<std::string, 2> messages;
  run_ranks(2, [&](comm::Communicator& node) {
    const CheckpointReader reader = CheckpointReader::open(step, node);
    std::vector<float> out(8);
    const auto bytes = std::as_writable_bytes(std::span(out));
    const std::string name = node.rank() == 0 ? "norm.weight" : "absent";
    const ReadRequest request{kWeight,
                              format::TensorSlice::whole(name, {8}, format::DType::F32),
                              0,
                              8,
                              format::DType::F32,
                              bytes};
    messages[static_cast<size_t>(node.rank())] =
        message_of<InputError>([&] { read_together(reader, {request}, node); });
  });
  EXPECT_HAS(messages[0], "'norm.weight' has shape [33], expected [8]");
  EXPECT_EQ(messages[0], messages[1]);
}

TEST(NodeReader, ADamagedSidecarIsTheSameErrorOnAllRanks) {
  const TempDir dir;
  const fs::path step = save_model(dir.path(), Cut::Rows, 5);
  flip_byte(step / "a1_rank_00003.json", 40);
  std::array<std::string, 2> messages;
  run_ranks(2, [&](comm::Communicator& node) {
    messages[static_cast<size_t>(node.rank())] =
        message_of<InputError>([&] { CheckpointReader::open(step, node); });
  });
  EXPECT_HAS(messages[0], "a1_rank_00003.json: has hash");
  EXPECT_EQ(messages[0], messages[1]);
}

TEST(NodeReader, HuggingFaceWeightsAreReadTogetherToo) {
  const TempDir dir;
  // The header has an odd length, as old writers made it, and the tensor is not aligned.
  std::string data(3, '\7');
  const format::TensorSlice tensor =
      format::TensorSlice::whole("w", {700, 900}, format::DType::BF16);
  std::vector<uint16_t> stored(static_cast<size_t>(tensor.num_elements()));
  for (size_t i = 0; i < stored.size(); ++i) {
    stored[i] = format::float_to_bf16(static_cast<float>(i % 251));
  }
  const auto bytes = std::as_bytes(std::span(stored));
  data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::string header =
      R"({"odd":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
      R"("w":{"dtype":"BF16","shape":[700,900],"data_offsets":[3,1260003]}})";
  if (header.size() % 2 == 0) header += ' ';
  write_file(dir / "model.safetensors", testing::safetensors_text(header, data));
  write_file(dir / "config.json", testing::kConfigJson);
  run_ranks(3, [&](comm::Communicator& node) {
    const auto source = WeightsSource::open(dir.path(), node);
    const format::TensorSlice box = cut(tensor, 1, node.rank(), 3);
    std::vector<float> out(static_cast<size_t>(box.num_elements()));
    const ReadReport report =
        total(read_together(source->stored(),
                            {{kWeight, box, 0, box.num_elements(), format::DType::F32,
                              std::as_writable_bytes(std::span(out))}},
                            node),
              node);
    EXPECT_EQ(report.read, data.size());
    for (int64_t row = 0; row < 700; ++row) {
      for (int64_t col = 0; col < 300; ++col) {
        const int64_t index = row * 900 + box.offset[1] + col;
        ASSERT_EQ(out[static_cast<size_t>(row * 300 + col)],
                  static_cast<float>(index % 251));
      }
    }
  });
}

}  // namespace
}  // namespace longhaul::checkpoint
