#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/families/model_config.h"
#include "longhaul/format/gguf.h"

namespace longhaul::checkpoint {

/// A tensor of a GGUF file and what it consists of.
struct GgufPart {
  format::GgufTensor tensor = {};
  /// The parameters whose elements lie one behind the other; empty: `values` are the
  /// elements.
  std::vector<std::string> parameters = {};
  /// If above 0, the rows of each parameter are those of so many heads. Row 2 j + t of a
  /// head is row t * half + j of the parameter's head, since llama.cpp turns neighbouring
  /// features of these architectures, and this program features half a head apart.
  int64_t heads = 0;
  bool plus_one = false;  ///< the elements are those of the parameters plus one
  std::vector<float> values = {};

  /// Returns the row of the parameter that is row `row` of it in the file.
  static int64_t row_of_parameter(int64_t row, int64_t head_rows) {
    const int64_t in_head = row % head_rows;
    return row - in_head + in_head % 2 * (head_rows / 2) + in_head / 2;
  }
  /// Returns the row in the file of a parameter's row.
  static int64_t row_in_file(int64_t row, int64_t head_rows) {
    const int64_t in_head = row % head_rows, half = head_rows / 2;
    return row - in_head + in_head % half * 2 + in_head / half;
  }
};

/// A model in the words of GGUF.
struct GgufModel {
  std::string architecture;   ///< "llama"
  format::GgufValues values;  ///< the keys that begin with the architecture
  std::vector<GgufPart> parts;
};

/// Describes a model for llama.cpp, with the keys and tensors that its converter writes.
/// Matrices have the type `type`, but F16 where their rows are no whole blocks of Q8_0.
/// Vectors, routers and tables of positions are F32. `stores_head` says whether the files
/// of a model with a tied head hold the head too. Throws InputError for a family that
/// llama.cpp lacks, and for what GGUF cannot say.
GgufModel describe_gguf(const ModelConfig& config, format::GgufType type,
                        bool stores_head);

/// Returns the label that names a model by its size: "8.03B", "8x7B".
std::string gguf_size_label(const GgufModel& model);

}  // namespace longhaul::checkpoint
