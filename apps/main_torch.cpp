#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "apps/program.h"
#include "apps/version/version.h"
#include "longhaul/system/process_title.h"
#include "longhaul/system/standard_streams.h"
#include "longhaul/tensor/vector_math.h"

// The verbs that compute with LibTorch; longhaul becomes this program for them.

int main(int argc, char** argv) {
  using namespace longhaul::apps;
  longhaul::system::guard_standard_streams();
  argv = longhaul::system::keep_arguments(argc, argv);
  longhaul::tensor::warm_up_vector_math();
  const int exit_code = run_program(argc, argv, [](CLI::App& program, Outcome& outcome) {
    add_bench(program, outcome);
    add_eval(program, outcome);
    add_generate(program, outcome);
    add_new(program, outcome);
    add_train(program, outcome);
    program.set_version_flag("--version", version_text, kVersionHelp);
  });
  // Everything of a run has ended with its scope. LibTorch's tables of operators remain,
  // and their destructors take half as long as the start of the program.
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(exit_code);
}
