#pragma once

#include <string>
#include <utility>
#include <vector>

#include "longhaul/families/description.h"

namespace longhaul::families {

/// Makes the description of one unit: parameters, and the multiplications with them.
class UnitMaker {
 public:
  /// `stddev`: of the first values of matrices and tables.
  UnitMaker(UnitKind kind, int64_t layer, double stddev) : stddev_(stddev) {
    unit_.kind = kind;
    unit_.layer = layer;
  }

  /// y = x W^T, W [out, in]. `stddev`: of its first values, where not the unit's.
  void matrix(const std::string& name, int64_t out, int64_t in, ShardSplit split,
              std::optional<double> stddev = {}) {
    add(name, {out, in}, {Init::Kind::Normal, stddev.value_or(stddev_)}, split);
    product(out, in);
  }
  /// Rows that are looked up by token.
  void table(const std::string& name, int64_t rows, int64_t width) {
    add(name, {rows, width}, {Init::Kind::Normal, stddev_}, {{ShardUnit::Vocabulary, 0}});
    unit_.work.lookups += static_cast<double>(width);
  }
  void norm(const std::string& name, int64_t width,
            std::optional<ShardSplit> split = {}) {
    add(name, {width}, {Init::Kind::Ones, 0.0}, split);
    unit_.parameters.back().decays = false;
  }
  void bias(const std::string& name, int64_t width, std::optional<ShardSplit> split) {
    add(name, {width}, {Init::Kind::Zeros, 0.0}, split);
    unit_.parameters.back().decays = false;
  }
  /// With a matrix that another unit has.
  void product(int64_t out, int64_t in) {
    unit_.work.products += static_cast<double>(out) * static_cast<double>(in);
  }
  /// Scores and values of so many features.
  void attention(int64_t width) {
    unit_.work.attention = 2.0 * static_cast<double>(width);
  }

  /// Of the parameter that was added last: Hugging Face's files hold it so.
  void stored_as(StoredForm form) { unit_.parameters.back().stored = std::move(form); }

  UnitDescription take() { return std::move(unit_); }

 private:
  void add(const std::string& name, std::vector<int64_t> shape, Init init,
           std::optional<ShardSplit> split) {
    unit_.parameters.push_back({name, std::move(shape), init, split, {}});
  }

  double stddev_;
  UnitDescription unit_;
};

}  // namespace longhaul::families
