#pragma once

#include "longhaul/comm/agree.h"

namespace longhaul::train {

using comm::on_all_ranks;
using comm::on_rank_zero;

}  // namespace longhaul::train
