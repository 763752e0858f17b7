#pragma once

#include "longhaul/objects/output_place.h"

namespace longhaul::apps {

/// Returns a verb's use of its --out, with the files that make this program's directories
/// count, and with standard error for what is told and warned of.
objects::OutputUse output_use(objects::OutputUse use);

}  // namespace longhaul::apps
