#include "longhaul/checkpoint/hf/model_check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/examine/inspect.h"
#include "longhaul/checkpoint/hf/hf_export.h"
#include "longhaul/checkpoint/read/finite_values.h"
#include "longhaul/comm/backend.h"
#include "tests/support/checkpoint_model.h"
#include "tests/support/rank_threads.h"

namespace longhaul::checkpoint {
namespace {

using testing::TempDir;
using testing::write_file;

using Tensors = std::map<std::string, format::TensorSlice>;
using Values = std::map<std::string, std::vector<float>>;

constexpr const char* kNorm = "model.norm.weight";
constexpr const char* kDown = "model.layers.0.mlp.down_proj.weight";

/// Returns the error of loading a directory; empty where there is none.
std::string refusal_of(const fs::path& dir) {
  try {
    const auto world = comm::self_world();
    const SharedSource source = WeightsSource::open(dir, *world);
    check_model(source, load_model_config(dir), *world);
    return {};
  } catch (const InputError& error) {
    return error.what();
  }
}

struct Damage {
  const char* name;
  std::function<void(const fs::path& dir)> make;
  std::vector<const char*> words;
};

std::function<void(const fs::path&)> with(
    const std::function<void(Tensors&, Values&)>& change) {
  return [=](const fs::path& dir) { testing::write_model(dir, change); };
}

std::function<void(const fs::path&)> beside(
    const std::function<void(const fs::path&)>& change) {
  return [=](const fs::path& dir) {
    testing::write_model(dir);
    change(dir);
  };
}

std::vector<Damage> damages() {
  return {{"missing",
           with([](Tensors& t, Values&) { t.erase(kNorm); }),
           {"1 missing: model.norm.weight [8]"}},
          {"misshapen",
           with([](Tensors& t, Values&) { t[kNorm].global_shape = {7}; }),
           {"model.norm.weight: expected [8], found [7]"}},
          {"surplus",
           with([](Tensors& t, Values&) {
             t["adapter.weight"] =
                 format::TensorSlice::whole("adapter.weight", {2}, format::DType::F32);
           }),
           {"1 unexpected: adapter.weight [2]"}},
          {"no float",
           with([](Tensors& t, Values&) { t[kNorm].dtype = format::DType::I32; }),
           {"model.norm.weight: its dtype I32 is not a float type"}},
          {"unknown dtype",
           beside([](const fs::path& dir) {
             std::string text = read_text(dir / "model.safetensors");
             text.replace(text.find("F32"), 3, "Q77");
             write_file(dir / "model.safetensors", text);
           }),
           {"unknown dtype 'Q77'"}},
          {"broken link",
           beside([](const fs::path& dir) {
             fs::remove(dir / "tokenizer.json");
             fs::create_symlink("../blobs/1f", dir / "tokenizer.json");
           }),
           {"tokenizer.json: a link to ../blobs/1f, where nothing is"}},
          {"broken SentencePiece",
           beside([](const fs::path& dir) {
             fs::remove(dir / "tokenizer.json");
             write_file(dir / "tokenizer.model", "no protocol buffer");
           }),
           {"tokenizer.model: not a SentencePiece model"}},
          {"a SentencePiece file that is cut short",
           beside([](const fs::path& dir) {
             fs::remove(dir / "tokenizer.json");
             write_file(dir / "spiece.model", "\x0A\x09\x0A\x05<unk>");
           }),
           {"spiece.model: not a SentencePiece model: a field of 9 bytes"}},
          {"broken JSON",
           beside([](const fs::path& dir) {
             write_file(dir / "tokenizer_config.json", "{\"a\"");
           }),
           {"tokenizer_config.json: not valid JSON at byte 5"}},
          {"a link for a config",
           beside([](const fs::path& dir) {
             fs::remove(dir / "config.json");
             fs::create_symlink("../blobs/1f", dir / "config.json");
           }),
           {"config.json: a link to ../blobs/1f, where nothing is"}},
          {"two faults",
           beside([](const fs::path& dir) {
             testing::write_model(dir, [](Tensors& t, Values&) { t.erase(kNorm); });
             write_file(dir / "vocab.json", "[");
           }),
           {"1 missing: model.norm.weight [8]", "vocab.json: not valid JSON"}}};
}

TEST(ModelCheck, WhatTheLoadingRefusesInspectDoesNotCallComplete) {
  const TempDir dir;
  testing::write_model(dir / "good");
  EXPECT_EQ(refusal_of(dir / "good"), "");
  EXPECT_TRUE(inspect_path(dir / "good").complete);
  for (const Damage& damage : damages()) {
    const fs::path path = dir / damage.name;
    damage.make(path);
    const std::string refused = refusal_of(path);
    const Inspection inspection = inspect_path(path);
    EXPECT_FALSE(inspection.complete) << damage.name;
    const std::string problems = inspection.json.at("problems").dump();
    for (const char* word : damage.words) {
      EXPECT_HAS(refused, word) << damage.name;
      EXPECT_HAS(problems, word) << damage.name;
    }
  }
}

// Returns a field of a protocol buffer that holds less than 128 bytes.
std::string field(char number, const std::string& content) {
  return std::string(1, static_cast<char>(number << 3 | 2)) +
         static_cast<char>(content.size()) + content;
}

TEST(ModelCheck, ATokenizerThatIsWholeAndNotReadHereIsANoteAndIsExported) {
  const std::string pieces =
      field(1, field(1, "<unk>") + "\x18\x02") + field(1, field(1, "a"));
  struct Whole {
    const char* name;
    std::string text;
    const char* why;
  };
  const TempDir dir;
  for (const Whole& whole : std::vector<Whole>{
           {"tokenizer.json", R"({"model": {"type": "Own", "vocab": {}}})", "Own"},
           {"tokenizer.model", "IQ== 0\nIg== 1\n", "is a tiktoken file"},
           {"spiece.model", pieces + field(2, "\x18\x04"), "the type CHAR"},
           {"tokenizer.model", pieces + field(2, "\x18\x07"), "the model type 7"},
           {"tokenizer.model", pieces + field(5, field(2, "x")), "a denormalizer"},
           {"vocab.json", R"({"a": 0})", "a tokenizer.json"}}) {
    fs::remove_all(dir.path());
    testing::write_model(dir / "model");
    fs::remove(dir / "model/tokenizer.json");
    write_file(dir / "model" / whole.name, whole.text);
    EXPECT_EQ(refusal_of(dir / "model"), "") << whole.why;
    const Inspection inspection = inspect_path(dir / "model");
    EXPECT_TRUE(inspection.complete) << whole.why;
    EXPECT_FALSE(inspection.json.contains("problems")) << whole.why;
    EXPECT_HAS(inspection.json.at("tokenizer_problem").get<std::string>(), whole.why);
    EXPECT_HAS(inspection.lines.back(), "note: text cannot be read: [tokenizer] ");
    export_hf(*WeightsSource::open(dir / "model"), dir / "out");
    EXPECT_EQ(read_text(dir / "out" / whole.name), whole.text);
  }
}

TEST(ModelCheck, AnAddedTokenBesideASentencePieceFileIsNoDamage) {
  const TempDir dir;
  testing::write_model(dir / "model");
  fs::remove(dir / "model/tokenizer.json");
  write_file(dir / "model/tokenizer.model",
             field(1, field(1, "<unk>") + "\x18\x02") + field(1, field(1, "a")));
  write_file(dir / "model/added_tokens.json", R"({"<new>": 2})");
  EXPECT_EQ(refusal_of(dir / "model"), "");
  const Inspection inspection = inspect_path(dir / "model");
  EXPECT_TRUE(inspection.complete);
  EXPECT_HAS(inspection.json.at("tokenizer_problem").get<std::string>(),
             "adds \"<new>\"");
}

TEST(ModelCheck, AllRanksRefuseWithTheSameWords) {
  const TempDir dir;
  damages()[5].make(dir / "model");
  std::vector<std::string> said(3);
  testing::run_ranks(3, [&](comm::Communicator& world) {
    const SharedSource source = WeightsSource::open(dir / "model", world);
    said[static_cast<size_t>(world.rank())] = message_of<InputError>(
        [&] { check_model(source, load_model_config(dir / "model"), world); });
  });
  EXPECT_HAS(said[0], "where nothing is");
  EXPECT_EQ(said[0], said[1]);
  EXPECT_EQ(said[0], said[2]);
}

TEST(NotFinite, AnExportNamesTheFirstElementAndLeavesNothing) {
  const TempDir dir;
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    testing::write_model(dir / "model", [&](Tensors&, Values& values) {
      values[kDown][3 * 16 + 5] = bad;
      values[kDown][7 * 16 + 1] = bad;
    });
    const auto source = WeightsSource::open(dir / "model");
    const std::string said =
        message_of<InputError>([&] { export_hf(*source, dir / "out"); });
    EXPECT_HAS(said, fmt::format("{}[3, 5] is {}", kDown, bad));
    EXPECT_HAS(said, (dir / "model").string());
    EXPECT_FALSE(fs::exists(dir / "out"));
  }
}

TEST(NotFinite, ANumberThatTheExportsDtypeCannotHoldIsNotWrittenAsInfinity) {
  const TempDir dir;
  testing::write_model(dir / "model",
                       [](Tensors&, Values& values) { values[kNorm][2] = 70000.0F; });
  const auto source = WeightsSource::open(dir / "model");
  ExportOptions options;
  options.dtype = format::DType::F16;
  EXPECT_HAS(message_of<InputError>([&] { export_hf(*source, dir / "out", options); }),
             "model.norm.weight[2] is 70000, which F16 cannot hold");
  options.dtype = format::DType::BF16;
  export_hf(*source, dir / "out", options);
}

TEST(NotFinite, ATiedHeadThatIsNanIsCalledThatAndNoDifference) {
  const TempDir dir;
  testing::write_model(dir / "model", [](Tensors&, Values& values) {
    values["lm_head.weight"][9] = std::nanf("");
    values["model.embed_tokens.weight"][9] = std::nanf("");
  });
  ModelConfig config = load_model_config(dir / "model");
  config.description.tied = TiedHead{"model.embed_tokens.weight", "lm_head.weight"};
  EXPECT_HAS(message_of<InputError>([&] {
               tied_head_difference(*WeightsSource::open(dir / "model"), config);
             }),
             "lm_head.weight[1, 1] is nan");
}

TEST(NotFinite, OfARunNoOlderCheckpointIsTakenInItsPlace) {
  const TempDir dir;
  for (const int64_t step : {4, 8}) {
    testing::run_ranks(1, [&](comm::Communicator& world) {
      testing::FlatState share = testing::flat_share(0, 1);
      if (step == 8) share.values[110] = std::nanf("");
      testing::save_now(dir / "run/checkpoints", step, 1, share.tensors, world, {},
                        testing::side_files());
    });
  }
  const auto use = [&](const fs::path& path) {
    ExportOptions options;
    options.any_family = true;
    export_hf(*WeightsSource::open(path), dir / "out", options);
  };
  const std::string said = message_of<InputError>(
      [&] { with_fall_back(dir / "run", use, [](const std::string&) {}); });
  EXPECT_HAS(said, "step_00000008: proj.weight[0, 0, 1] is nan");
  EXPECT_FALSE(fs::exists(dir / "out"));
  use(dir / "run/checkpoints/step_00000004");
}

TEST(NotFinite, AParameterOfFusedFilesIsNamedAsTheFilesNameIt) {
  const TempDir dir;
  write_file(dir / "config.json", R"({"model_type": "gpt2", "vocab_size": 11, "n_embd": 4,
      "n_layer": 1, "n_head": 2, "n_positions": 8, "attn_pdrop": 0.0,
      "embd_pdrop": 0.0, "resid_pdrop": 0.0})");
  format::SafetensorsPlan plan;
  const ModelConfig config = load_model_config(dir.path());
  for (const format::TensorSlice& tensor : config.description.stored_tensors()) {
    plan.add(tensor.name, format::DType::F32, tensor.global_shape);
  }
  format::SafetensorsWriter writer(dir / "model.safetensors", plan);
  const std::string fused = "transformer.h.0.attn.c_attn.weight";
  for (const format::SafetensorsEntry& entry : plan.entries) {
    std::vector<float> values((entry.end - entry.begin) / 4, 1.0F);
    if (entry.name == fused) values[2 * 12 + 7] = std::nanf("");
    writer.append(std::as_bytes(std::span(values)));
  }
  writer.finish();
  const SharedSource source =
      as_parameters(WeightsSource::open(dir.path()), config.description);
  int found = 0;
  for (const format::TensorSlice& parameter : source->tensors()) {
    const std::vector<std::string> origins = source->origins(parameter.name);
    if (std::ranges::find(origins, fused) == origins.end()) {
      EXPECT_NO_THROW(scan_finite(*source, parameter.name, format::DType::F32));
      continue;
    }
    ++found;
    EXPECT_HAS(message_of<InputError>(
                   [&] { scan_finite(*source, parameter.name, format::DType::F32); }),
               fused + "[2, 7] is nan");
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace longhaul::checkpoint
