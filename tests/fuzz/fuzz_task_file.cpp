#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "longhaul/data/tasks/task_file.h"
#include "tests/fuzz/input_bytes.h"

// Takes any bytes for a file of lm-eval's samples. The result is a clear InputError, or a
// task whose questions can be scored.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul::data;
  InputBytes input(data, size);
  try {
    const TaskFile task = read_task_file(input.file().path);
    const std::vector<TaskAnswer> answers(task.requests.size(), {-1.5, true});
    if (task_figures(task, answers).size() != task.metrics.size()) std::abort();
  } catch (const longhaul::InputError&) {
  }
  return 0;
}
