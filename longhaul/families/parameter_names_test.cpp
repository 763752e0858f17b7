#include "longhaul/families/parameter_names.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(ParameterNames, OfAFusedTensorAreAllThatFilesAndPeopleUse) {
  ParameterDescription q;
  q.name = "transformer.h.0.attn.q_proj.weight";
  q.stored = StoredForm{.name = "transformer.h.0.attn.c_attn.weight"};
  ModelDescription model;
  model.optional_prefix = "transformer.";
  EXPECT_EQ(names_of(model, q), (std::vector<std::string>{
                                    "transformer.h.0.attn.q_proj.weight",
                                    "transformer.h.0.attn.c_attn.weight",
                                    "h.0.attn.q_proj.weight", "h.0.attn.c_attn.weight"}));
  EXPECT_EQ(file_name(q), "transformer.h.0.attn.c_attn.weight");
}

TEST(ParameterNames, OfATensorOfItsOwnAreOneUnlessOlderFilesSpellIt) {
  ParameterDescription norm;
  norm.name = "bert.embeddings.LayerNorm.bias";
  ModelDescription model;
  EXPECT_EQ(names_of(model, norm), std::vector<std::string>{norm.name});
  model.old_endings = {{".LayerNorm.gamma", ".LayerNorm.weight"},
                       {".LayerNorm.beta", ".LayerNorm.bias"}};
  EXPECT_EQ(names_of(model, norm),
            (std::vector<std::string>{norm.name, "bert.embeddings.LayerNorm.beta"}));
}

}  // namespace
}  // namespace longhaul
