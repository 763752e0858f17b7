#pragma once

#include <string>
#include <utility>
#include <vector>

#include "longhaul/families/network.h"

// A network that is wrong in one way, for the comparison with transformers. The
// description and the second evaluation of the certificate follow the same network. So
// nothing else would see such a mistake in a family.

namespace longhaul::testing {

/// Returns the first core of a kind in a block, or null.
template <typename Kind>
Kind* core_of(families::Block& block) {
  for (families::Step& step : block) {
    for (families::Branch& branch : step.branches) {
      if (auto* core = std::get_if<Kind>(&branch.core)) return core;
    }
  }
  return nullptr;
}

/// Returns the feed-forward of a block, or the feed-forwards of all its experts.
inline std::vector<families::FeedForward*> feed_forwards_of(families::Block& block) {
  std::vector<families::FeedForward*> all;
  if (auto* one = core_of<families::FeedForward>(block)) all.push_back(one);
  if (auto* mixture = core_of<families::Experts>(block)) {
    for (families::FeedForward& one : mixture->experts) all.push_back(&one);
  }
  return all;
}

/// Plants the fault in the embedding or in the head, as plant_fault does in blocks.
inline bool plant_outside_of_blocks(families::Network& network,
                                    const std::string& fault) {
  bool planted = false;
  auto* head = std::get_if<families::LanguageHead>(&network.head);
  if (fault == "no_scale_of_embedding" && network.embedding.scale != 1.0) {
    network.embedding.scale = 1.0;
    planted = true;
  }
  if (fault == "no_divisor_of_logits" && head != nullptr && head->logits_divisor != 1.0) {
    head->logits_divisor = 1.0;
    planted = true;
  }
  if (fault == "no_cap_of_logits" && head != nullptr && head->logits_cap != 0.0) {
    head->logits_cap = 0.0;
    planted = true;
  }
  return planted;
}

/// Plants the fault in each block, or in the first block. Returns false if the network
/// has nothing that the fault could change; its numbers then stay as they are.
inline bool plant_fault(families::Network& network, const std::string& fault) {
  bool planted = false;
  for (families::Block& block : network.blocks) {
    auto* attention = core_of<families::Attention>(block);
    auto* experts = core_of<families::Experts>(block);
    families::Branch& first = block.front().branches.front();
    families::Branch& last = block.back().branches.back();
    if (fault == "dropped_norm") {
      auto& norm = first.before              ? first.before
                   : block.front().of_stream ? block.front().of_stream
                                             : first.after;
      norm.reset();
      return true;
    }
    if (fault == "swapped_branches") {
      std::swap(first.core, last.core);
      planted = true;
    }
    if (fault == "wrong_interleave" && attention->key.stored &&
        attention->key.stored->name == attention->value.stored->name) {
      std::swap(attention->key.stored, attention->value.stored);
      planted = true;
    }
    if (fault == "wrong_activation") {
      for (families::FeedForward* one : feed_forwards_of(block)) {
        one->activation = one->activation == Activation::GeluExact
                              ? Activation::GeluTanh
                              : Activation::GeluExact;
        planted = true;
      }
    }
    if (fault == "other_weights_of_experts" && experts != nullptr) {
      experts->normalised = !experts->normalised;
      planted = true;
    }
    if (fault == "one_expert_less" && experts != nullptr) {
      --experts->top_k;
      planted = true;
    }
    if (fault == "swapped_gates" && experts != nullptr) {
      for (families::FeedForward& one : experts->experts) std::swap(*one.gate, one.up);
      planted = true;
    }
    if (fault == "half_rotated" && attention->rotation) {
      attention->rotation->features /= 2;
      planted = true;
    }
    if (fault == "no_window" && attention->window) {
      attention->window.reset();
      planted = true;
    }
    if (fault == "no_scale_of_scores" && attention->scale) {
      attention->scale.reset();
      planted = true;
    }
    if (fault == "no_cap_of_scores" && attention->score_cap != 0.0) {
      attention->score_cap = 0.0;
      planted = true;
    }
    if (fault == "no_scale_of_branches" && last.scale != 1.0) {
      last.scale = 1.0;
      planted = true;
    }
    if (fault == "one_rotation" && attention->rotation) {
      planted |= attention->rotation !=
                 core_of<families::Attention>(network.blocks[0])->rotation;
      attention->rotation = core_of<families::Attention>(network.blocks[0])->rotation;
    }
  }
  return plant_outside_of_blocks(network, fault) || planted;
}

}  // namespace longhaul::testing
