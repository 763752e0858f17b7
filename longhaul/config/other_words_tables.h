#pragma once

#include <span>

#include "longhaul/config/other_words.h"

// The dictionary's tables, for words_of.

namespace longhaul::config {

std::span<const OtherWord> common_words();
std::span<const OtherWord> nxd_pipeline_words();
std::span<const OtherWord> nxd_zero_words();
std::span<const OtherWord> bert_words();
std::span<const OtherWord> smp_words();
std::span<const OtherWord> megatron_words();
std::span<const OtherWord> torchtitan_words();
std::span<const OtherWord> nanotron_words();
std::span<const OtherWord> axolotl_words();
std::span<const OtherWord> environment_words();

}  // namespace longhaul::config
