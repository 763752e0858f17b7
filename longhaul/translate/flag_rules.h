#pragma once

#include "longhaul/translate/launched_job.h"

namespace longhaul::translate {

// Each function translates the settings of one system that OtherWord::carry marks as
// Rule. It adds the defaults of that system that differ from the defaults of longhaul.
// The draft already has the copied values.

void translate_nxd_pipeline(const Job& job);
void translate_nxd_zero(const Job& job);
void translate_bert(const Job& job);
void translate_smp(const Job& job);
void translate_megatron(const Job& job);
void translate_torchtitan(const Job& job);
void translate_nanotron(const Job& job);
void translate_axolotl(const Job& job);

}  // namespace longhaul::translate
