#include "longhaul/checkpoint/hf/hf_forms.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "longhaul/base/error.h"
#include "tests/support/weights_files.h"

namespace longhaul::checkpoint {
namespace {

/// A source of fp32 tensors in memory.
class MemorySource final : public WeightsSource {
 public:
  using Tensors =
      std::map<std::string, std::pair<format::TensorSlice, std::vector<float>>>;
  MemorySource(ModelSource::Kind kind, Tensors tensors) : tensors_(std::move(tensors)) {
    source_.kind = kind;
    source_.path = "memory";
  }
  const ModelSource& source() const override { return source_; }
  std::vector<format::TensorSlice> tensors() const override {
    std::vector<format::TensorSlice> all;
    for (const auto& [name, tensor] : tensors_) all.push_back(tensor.first);
    return all;
  }
  void read(const format::TensorSlice& box, format::DType dst,
            std::span<std::byte> out) const override {
    const auto& [whole, values] = tensors_.at(box.name);
    format::TensorSlice wanted = box;
    wanted.dtype = dst;
    format::copy_box(whole, std::as_bytes(std::span(values)), wanted, out);
  }
  const StoredTensors& stored() const override { throw std::logic_error("not asked"); }
  fs::path config_path() const override { return {}; }
  std::vector<CarriedFile> files_to_carry() const override { return {}; }
  std::vector<std::string> ignored() const override { return {}; }

 private:
  ModelSource source_;
  Tensors tensors_;
};

/// Returns a model with two parameters of 6 and 3 rows that share a stored tensor of 9
/// rows, in turns of 2 and 1 rows, and with a third parameter that shares nothing.
/// `transposed` says whether the shared tensor is stored as [columns, rows].
ModelDescription interleaved(bool transposed) {
  ModelDescription model;
  UnitDescription unit;
  unit.parameters.push_back({"m.long", {6, 4}, {}, {}, {}, true});
  unit.parameters.back().stored = StoredForm{"m.both", transposed, 9, 0, 2, 3};
  unit.parameters.push_back({"m.short", {3, 4}, {}, {}, {}, true});
  unit.parameters.back().stored = StoredForm{"m.both", transposed, 9, 2, 1, 3};
  unit.parameters.push_back({"m.alone", {5}, {}, {}, {}, true});
  model.units.push_back(unit);
  model.optional_prefix = "m.";
  return model;
}

/// Returns the model's files, in which the shared tensor has the element 10 r + c in row
/// r and column c.
SharedSource files(bool transposed, const std::string& prefix = "m.") {
  std::vector<float> both(36);
  for (size_t r = 0; r < 9; ++r) {
    for (size_t c = 0; c < 4; ++c) {
      both[transposed ? c * 9 + r : r * 4 + c] = static_cast<float>(10 * r + c);
    }
  }
  const std::vector<int64_t> shape =
      transposed ? std::vector<int64_t>{4, 9} : std::vector<int64_t>{9, 4};
  MemorySource::Tensors tensors;
  tensors[prefix + "both"] = {
      format::TensorSlice::whole(prefix + "both", shape, format::DType::F32), both};
  tensors[prefix + "alone"] = {
      format::TensorSlice::whole(prefix + "alone", {5}, format::DType::F32),
      {1, 2, 3, 4, 5}};
  return std::make_shared<MemorySource>(ModelSource::Kind::HfDirectory, tensors);
}

std::vector<float> read(const WeightsSource& source, const format::TensorSlice& box) {
  std::vector<float> out(static_cast<size_t>(box.num_elements()));
  source.read(box, format::DType::F32, std::as_writable_bytes(std::span(out)));
  return out;
}

/// Returns a source that counts as a checkpoint, with the tensors and values of `source`.
SharedSource checkpoint_of(const SharedSource& source) {
  MemorySource::Tensors tensors;
  for (const format::TensorSlice& tensor : source->tensors()) {
    tensors[tensor.name] = {tensor, read(*source, tensor)};
  }
  return std::make_shared<MemorySource>(ModelSource::Kind::Checkpoint, tensors);
}

TEST(HfForms, RowsOfAParameterAreFoundWhereTheFilesHaveThem) {
  for (const bool transposed : {false, true}) {
    const SharedSource found = as_parameters(files(transposed), interleaved(transposed));
    format::TensorSlice box =
        format::TensorSlice::whole("m.long", {6, 4}, format::DType::F32);
    EXPECT_EQ(read(*found, box),
              (std::vector<float>{0,  1,  2,  3,  10, 11, 12, 13, 30, 31, 32, 33,
                                  40, 41, 42, 43, 60, 61, 62, 63, 70, 71, 72, 73}));
    box.offset = {1, 2};
    box.extent = {3, 2};
    EXPECT_EQ(read(*found, box), (std::vector<float>{12, 13, 32, 33, 42, 43}));
    EXPECT_EQ(
        read(*found, format::TensorSlice::whole("m.short", {3, 4}, format::DType::F32)),
        (std::vector<float>{20, 21, 22, 23, 50, 51, 52, 53, 80, 81, 82, 83}));
    EXPECT_EQ(
        read(*found, format::TensorSlice::whole("m.alone", {5}, format::DType::F32)),
        (std::vector<float>{1, 2, 3, 4, 5}));
    EXPECT_FALSE(found->as_stored("m.long"));
    EXPECT_TRUE(found->as_stored("m.alone"));
  }
}

TEST(HfForms, WhatParametersAreWrittenAsIsWhatTheFilesHeld) {
  for (const bool transposed : {false, true}) {
    const ModelDescription model = interleaved(transposed);
    const SharedSource original = files(transposed);
    const SharedSource saved = checkpoint_of(as_parameters(original, model));
    EXPECT_EQ(saved->tensors().size(), 3U);
    const SharedSource written = as_hugging_face(saved, model);
    EXPECT_EQ(written->tensors(), original->tensors());
    for (const format::TensorSlice& tensor : original->tensors()) {
      EXPECT_EQ(read(*written, tensor), read(*original, tensor)) << tensor.name;
      // Reads a few elements at a time, as exports do.
      std::vector<float> part(3);
      written->read_flat_range(tensor, 1, 4, format::DType::F32,
                               std::as_writable_bytes(std::span(part)));
      const std::vector<float> whole = read(*original, tensor);
      EXPECT_EQ(part, std::vector<float>(whole.begin() + 1, whole.begin() + 4));
    }
    EXPECT_NO_THROW(check_weights(saved, model));
  }
}

void add(MemorySource::Tensors& tensors, const std::string& name,
         const std::vector<int64_t>& shape, float first) {
  const auto whole = format::TensorSlice::whole(name, shape, format::DType::F32);
  std::vector<float> values(static_cast<size_t>(whole.num_elements()));
  std::iota(values.begin(), values.end(), first);
  tensors[name] = {whole, values};
}

/// Returns a model of two experts, each with two parameters of two rows and three columns
/// that an adapter's files hold together: one behind the other, and their columns in
/// turns.
ModelDescription columns_in_turns() {
  ModelDescription model;
  UnitDescription unit;
  for (const int64_t expert : {1, 0}) {
    for (const int64_t number : {1, 0}) {
      unit.parameters.push_back({fmt::format("m.{}.{}", expert, number), {2, 3}, {}, {}});
      StoredForm form{.name = "m.all", .rows = 4, .block = 2, .period = 2};
      form.first = 2 * number;
      form.first_column = expert;
      form.column_period = 2;
      unit.parameters.back().other_form = form;
    }
  }
  model.units.push_back(unit);
  return model;
}

TEST(HfForms, ColumnsOfAnAdaptersFilesBelongToExpertsInTurns) {
  const ModelDescription model = columns_in_turns();
  MemorySource::Tensors tensors;
  add(tensors, "m.all", {4, 6}, 0);
  const auto original =
      std::make_shared<MemorySource>(ModelSource::Kind::HfDirectory, tensors);
  const SharedSource found = as_parameters(original, model);
  const auto whole = [](const std::string& name) {
    return format::TensorSlice::whole(name, {2, 3}, format::DType::F32);
  };
  EXPECT_EQ(read(*found, whole("m.0.0")), (std::vector<float>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(read(*found, whole("m.1.1")), (std::vector<float>{13, 15, 17, 19, 21, 23}));
  format::TensorSlice box = whole("m.1.0");
  box.offset = {1, 1};
  box.extent = {1, 2};
  EXPECT_EQ(read(*found, box), (std::vector<float>{9, 11}));
  const SharedSource saved = checkpoint_of(found);
  EXPECT_EQ(saved->tensors().size(), 4U);
  const SharedSource written = as_adapter_files(saved, model);
  EXPECT_EQ(written->tensors(), original->tensors());
  const format::TensorSlice all = original->tensors().front();
  EXPECT_EQ(read(*written, all), read(*original, all));
  for (const int64_t begin : {1, 7, 16}) {
    std::vector<float> part(6);
    written->read_flat_range(all, begin, begin + 6, format::DType::F32,
                             std::as_writable_bytes(std::span(part)));
    std::vector<float> right(6);
    std::iota(right.begin(), right.end(), static_cast<float>(begin));
    EXPECT_EQ(part, right);
  }
}

TEST(HfForms, FilesOfOlderVersionsLeaveThePrefixOut) {
  const ModelDescription model = interleaved(true);
  const SharedSource found = as_parameters(files(true, ""), model);
  EXPECT_EQ(
      read(*found, format::TensorSlice::whole("m.short", {3, 4}, format::DType::F32)),
      (std::vector<float>{20, 21, 22, 23, 50, 51, 52, 53, 80, 81, 82, 83}));
  EXPECT_NO_THROW(check_weights(found, model));
}

TEST(HfForms, WhatIsMissingIsNamedAsTheFilesNameIt) {
  ModelDescription model = interleaved(true);
  model.units[0].parameters[0].stored->name = "m.other";
  model.units[0].parameters[1].stored->name = "m.other";
  const std::string said = message_of<InputError>(
      [&] { check_weights(as_parameters(files(true), model), model); });
  EXPECT_HAS(said, "1 missing: m.other [4, 9]");
  EXPECT_HAS(said, "1 unexpected: m.both [4, 9]");
}

/// Returns a model of two experts, each with a gate and an up of two rows, which files
/// may hold together.
ModelDescription two_experts() {
  ModelDescription model;
  UnitDescription unit;
  int64_t first = 0;
  for (const char* name : {"m.0.gate", "m.0.up", "m.1.gate", "m.1.up"}) {
    unit.parameters.push_back({name, {2, 3}, {}, {}, {}, {}});
    StoredForm together{"m.all", false, 8};
    together.matrices = 2;
    together.first = std::exchange(first, first + 2);
    together.block = together.period = 2;
    unit.parameters.back().other_form = together;
  }
  unit.parameters.push_back({"m.new_end", {5}, {}, {}, {}, {}});
  model.units.push_back(unit);
  model.old_endings = {{".old_end", ".new_end"}};
  return model;
}

/// Returns the experts' files in both forms, with the same values: all elements count up
/// from 0.
MemorySource::Tensors together() {
  MemorySource::Tensors tensors;
  add(tensors, "m.all", {2, 4, 3}, 0);
  add(tensors, "m.old_end", {5}, 50);
  return tensors;
}
MemorySource::Tensors one_by_one() {
  MemorySource::Tensors tensors;
  float first = 0;
  for (const char* name : {"m.0.gate", "m.0.up", "m.1.gate", "m.1.up"}) {
    add(tensors, name, {2, 3}, std::exchange(first, first + 6));
  }
  add(tensors, "m.new_end", {5}, 50);
  return tensors;
}

SharedSource files_of(const MemorySource::Tensors& tensors) {
  return std::make_shared<MemorySource>(ModelSource::Kind::HfDirectory, tensors);
}

TEST(HfForms, ExpertsThatFilesHoldTogetherAreReadOneByOneAndWrittenSo) {
  const ModelDescription model = two_experts();
  const SharedSource apart = files_of(one_by_one());
  const SharedSource fused = files_of(together());
  for (const SharedSource& found :
       {as_parameters(fused, model), as_hugging_face(fused, model)}) {
    EXPECT_EQ(found->tensors(), apart->tensors());
    for (const format::TensorSlice& tensor : apart->tensors()) {
      EXPECT_EQ(read(*found, tensor), read(*apart, tensor)) << tensor.name;
    }
    format::TensorSlice box =
        format::TensorSlice::whole("m.1.up", {2, 3}, format::DType::F32);
    box.offset = {1, 1};
    box.extent = {1, 2};
    EXPECT_EQ(read(*found, box), (std::vector<float>{22, 23}));
    EXPECT_EQ(found->origins("m.1.up"), std::vector<std::string>{"m.all"});
    EXPECT_FALSE(found->as_stored("m.1.up"));
    EXPECT_NO_THROW(check_weights(found, model));
  }
  EXPECT_EQ(as_parameters(apart, model), apart);
  EXPECT_EQ(as_hugging_face(checkpoint_of(apart), model)->tensors(), apart->tensors());
}

TEST(HfForms, ExpertsThatAreMissingOrThereTwiceAreNamed) {
  const ModelDescription model = two_experts();
  const auto said = [&](const MemorySource::Tensors& tensors) {
    return message_of<InputError>(
        [&] { check_weights(as_parameters(files_of(tensors), model), model); });
  };
  MemorySource::Tensors tensors = one_by_one();
  tensors.erase("m.1.up");
  EXPECT_HAS(said(tensors), "1 missing: m.1.up [2, 3]");
  tensors = together();
  add(tensors, "m.0.up", {2, 3}, 6);
  EXPECT_HAS(said(tensors), "1 unexpected: m.all [2, 4, 3]");
  tensors = together();
  add(tensors, "m.all", {3, 4, 3}, 0);
  EXPECT_HAS(said(tensors), "4 missing: m.0.gate [2, 3], m.0.up [2, 3]");
  EXPECT_HAS(said(tensors), "1 unexpected: m.all [3, 4, 3]");
}

}  // namespace
}  // namespace longhaul::checkpoint
