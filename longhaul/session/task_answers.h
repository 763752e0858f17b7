#pragma once

#include <functional>
#include <vector>

#include "longhaul/data/tasks/task_rows.h"
#include "longhaul/infer/evaluate.h"
#include "longhaul/session/session.h"

namespace longhaul::session {

/// Returns the model's answer to each request of a task, the same on all ranks. Replicas
/// share the rows as in a validation, with these options. `before_batches` is called
/// before each pass over micro batches; what it throws ends the work. Collective.
std::vector<data::TaskAnswer> answer_requests(
    const Session& session, const data::TaskRows& rows,
    const infer::EvaluateOptions& options,
    const std::function<void()>& before_batches = {});

}  // namespace longhaul::session
