#include <ATen/DeviceAccelerator.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "apps/links/device_links.h"
#include "apps/program.h"
#include "apps/version/version.h"
#include "longhaul/device/plugin.h"
#include "longhaul/system/process_title.h"
#include "longhaul/system/standard_streams.h"
#include "longhaul/tensor/vector_math.h"

// The program of the verbs that compute with LibTorch. For these verbs, `longhaul`
// replaces itself by this program.

int main(int argc, char** argv) {
  using namespace longhaul::apps;
  longhaul::system::guard_standard_streams();
  argv = longhaul::system::keep_arguments(argc, argv);
  longhaul::tensor::warm_up_vector_math();
  const int exit_code = run_program(argc, argv, [](CLI::App& program, Outcome& outcome) {
    add_bench(program, outcome);
    add_compile(program, outcome);
    add_doctor(program, outcome, {[] {}, try_devices});
    add_document_losses(program, outcome);
    add_eval(program, outcome);
    add_export(program, outcome, [] {});
    add_generate(program, outcome);
    add_new(program, outcome);
    add_rehearse(program, outcome);
    add_serve(program, outcome);
    add_train(program, outcome);
    program.set_version_flag("--version", version_text, kVersionHelp);
  });
  // All objects of the run were destroyed with the scope that held them. LibTorch's
  // tables of operators remain, and their destructors take a sixth of the processor time
  // of a short command. _Exit skips them. It also skips other work at the end of the
  // process, which the library of a device may need.
  longhaul::device::close_plugin();
  if (at::getAccelerator()) return exit_code;
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(exit_code);
}
