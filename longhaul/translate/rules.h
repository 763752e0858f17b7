#pragma once

#include "longhaul/translate/job.h"

namespace longhaul::translate {

// What becomes of the names of config::OtherWord whose carry is Rule, and the defaults of
// each system where they are not longhaul's. The values that are copied are in the draft.

void translate_nxd_pipeline(const Job& job);
void translate_nxd_zero(const Job& job);
void translate_bert(const Job& job);
void translate_smp(const Job& job);
void translate_megatron(const Job& job);
void translate_torchtitan(const Job& job);
void translate_nanotron(const Job& job);
void translate_axolotl(const Job& job);

}  // namespace longhaul::translate
