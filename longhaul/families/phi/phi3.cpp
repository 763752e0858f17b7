#include "longhaul/families/decoder.h"

namespace longhaul::families {
namespace {

/// Refuses fields that the class in transformers refuses, reads in another sense or never
/// reads.
void check_phi3(const ConfigFields& fields, const RopeConfig& rope) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (fields.object().contains(kOriginal) && !fields.find(kOriginal)) {
    fields.fail(kOriginal, "is null, which transformers refuses; remove it");
  }
  if (rope.kind != RopeConfig::Kind::Plain) {
    fields.fail(fields.find("rope_scaling") ? "rope_scaling" : "rope_parameters",
                "has the kind \"{}\", which transformers refuses for this family or "
                "takes for \"longrope\"; only \"default\" is available",
                rope_type_name(rope.kind));
  }
  fields.refuse_true({"attention_bias", "lm_head_bias", "mlp_bias"},
                     "has no effect in transformers; remove it");
  if (fields.dropout("embd_pdrop", 0.0) != 0.0) {
    fields.fail("embd_pdrop", "has no effect in transformers; set it to 0");
  }
}

void change_phi3(const ConfigFields& fields, Network& network) {
  read_window(fields, network);
  const double dropout = fields.dropout("resid_pdrop", 0.0);
  for (const DecoderLayer& layer : layers_of(network)) {
    Attention& a = layer.attention;
    FeedForward& f = layer.feed_forward;
    check_phi3(fields, a.rotation->rope);
    store_together(layer.name + "self_attn.qkv_proj", {&a.query, &a.key, &a.value});
    store_together(layer.name + "mlp.gate_up_proj", {&*f.gate, &f.up});
    layer.first.dropout = layer.second.dropout = dropout;
  }
}

}  // namespace

/// Returns Phi-3 and Phi-4 (Abdin et al. 2024, arXiv 2404.14219 and 2412.08905), whose
/// files hold queries, keys and values in one tensor, and gate and up in another.
Family phi3_family() {
  return decoder_family(
      "phi3", "Phi-3, Phi-4", "Phi3ForCausalLM",
      {.more = "attention_bias embd_pdrop lm_head_bias mlp_bias resid_pdrop "
               "sliding_window",
       .nullable = "attention_bias lm_head_bias mlp_bias num_key_value_heads "
                   "sliding_window",
       .absent = {.pad_token_id = 32000},
       .tokenizer = kReadsTokenizerFile,
       .parts_of_heads = true,
       .change = change_phi3});
}

}  // namespace longhaul::families
