"""The house rules find what they are there for: each planted violation is reported."""

import unittest

import check_calls
import check_includes
import check_names
import check_sizes
import check_words
import house


class Calls(unittest.TestCase):
    def test_a_call_whose_exception_would_reach_a_user_is_reported_outside_of_its_place(self):
        for call in ("json.dump()", "json->dump(2)", "std::vector<std::thread> threads;"):
            found = check_calls.problems_of("longhaul/train/x.cpp", f"int a;\n{call};\n")
            self.assertEqual(1, len(found), call)
            self.assertTrue(found[0].startswith("longhaul/train/x.cpp:2: "), found)

    def test_its_own_place_and_comments_may_have_it(self):
        self.assertEqual([], check_calls.problems_of("longhaul/base/json.h", "value.dump(2);"))
        self.assertEqual([], check_calls.problems_of("longhaul/train/x.cpp", "// json.dump()\n"))


class Includes(unittest.TestCase):
    def problems(self, name, *targets):
        return check_includes.problems_of(name, "".join(f"#include {t}\n" for t in targets))

    def test_a_folder_may_include_its_row_and_what_that_row_includes(self):
        self.assertEqual([], self.problems("longhaul/nn/x.cpp", '"longhaul/ops/rope.h"',
                                           '"longhaul/comm/mesh.h"', "<ATen/core/Tensor.h>",
                                           '"longhaul/base/error.h"'))

    def test_models_and_parallel_never_see_each_other(self):
        for name, other in (("models", "parallel"), ("parallel", "models")):
            found = self.problems(f"longhaul/{name}/x.h", f'"longhaul/{other}/y.h"')
            self.assertEqual([f"longhaul/{name}/x.h:1: {name} may not include {other} "
                              f"(longhaul/{other}/y.h)"], found)

    def test_a_room_includes_the_rooms_before_it_and_none_behind_it(self):
        self.assertEqual([], self.problems("longhaul/cluster/agent/x.cpp",
                                           '"longhaul/cluster/control/channel.h"'))
        self.assertEqual(["longhaul/cluster/control/x.h:1: cluster/control may not include "
                          "cluster/agent (longhaul/cluster/agent/y.h)"],
                         self.problems("longhaul/cluster/control/x.h",
                                       '"longhaul/cluster/agent/y.h"'))
        self.assertEqual(1, len(self.problems("apps/try/x.cpp", '"apps/verbs/verbs.h"')))

    def test_what_tests_share_is_for_tests_alone(self):
        shared = '"tests/support/fake_ranks.h"'
        self.assertEqual([], self.problems("longhaul/comm/x_test.cpp", shared))
        self.assertEqual(1, len(self.problems("longhaul/comm/x.cpp", shared)))

    def test_base_includes_no_other_folder(self):
        self.assertEqual(1, len(self.problems("longhaul/base/x.cpp",
                                              '"longhaul/format/dtype.h"')))

    def test_format_may_include_config_but_not_the_reverse(self):
        self.assertEqual([], self.problems("longhaul/format/x.h", '"longhaul/config/load.h"'))
        self.assertEqual(1, len(self.problems("longhaul/config/x.h",
                                              '"longhaul/format/dtype.h"')))

    def test_torch_free_folders_and_kernels_include_no_torch(self):
        for name in ("longhaul/data/x.cpp", "longhaul/ops/kernels/x.cpp"):
            self.assertEqual(1, len(self.problems(name, "<ATen/core/Tensor.h>")))
        self.assertEqual([], self.problems("longhaul/ops/x.cpp", "<c10/core/Device.h>"))

    def test_the_header_of_all_of_torch_is_refused_everywhere(self):
        self.assertEqual(1, len(self.problems("tests/parity/x.cpp", "<torch/torch.h>")))

    def test_a_main_that_computes_warms_up_the_vector_mathematics(self):
        begin = '#include "longhaul/ops/rope.h"\nint main() {\n'
        self.assertEqual(["bench/x.cpp:2: a main that uses LibTorch begins with "
                          "warm_up_vector_math();"],
                         check_includes.problems_of("bench/x.cpp", begin + "}\n"))
        warmed = begin + "  longhaul::warm_up_vector_math();\n}\n"
        self.assertEqual([], check_includes.problems_of("bench/x.cpp", warmed))
        for torch_free in ('"longhaul/comm/mesh.h"', '"longhaul/ops/kernels/cpu.h"'):
            source = f"#include {torch_free}\nint main() {{}}\n"
            self.assertEqual([], check_includes.problems_of("bench/x.cpp", source))
            self.assertEqual(1, len(check_includes.problems_of("apps/main_torch.cpp", source)))

    def test_a_folder_without_a_row_and_a_relative_include_are_refused(self):
        self.assertEqual(1, len(self.problems("longhaul/newcomer/x.h")))
        self.assertEqual(1, len(self.problems("longhaul/base/x.cpp", '"error.h"')))

    def test_the_table_has_no_cycle_and_apps_may_include_all(self):
        for folder in check_includes.ROWS:
            for other in check_includes.allowed(folder) - {folder}:
                self.assertNotIn(folder, check_includes.allowed(other) - {other}
                                 if other not in check_includes.EVERYWHERE else set())
        self.assertEqual([], self.problems("apps/x.cpp", '"longhaul/train/trainer.h"'))


class Names(unittest.TestCase):
    def problems(self, source):
        return check_names.problems_of("apps/x.cpp", source, check_names.file_names(),
                                       check_names.event_kinds(), check_names.figures())

    def test_a_runs_file_is_named_by_its_owner_alone(self):
        for source in ('open(dir / "metrics.jsonl");', 'warn("status.json is old");',
                       'f("runs/a/config.toml");', 'dir / "captures"', 'take("STOP");',
                       'dir /\n    "checkpoints"', 'lock(dir / "control/supervisor.lock");'):
            self.assertEqual(1, len(self.problems(source)), source)
        for source in ('open(dir / kMetricsFile);', '// metrics.jsonl\n', 'json["checkpoints"]',
                       '"hf_config.json"', '#include "longhaul/run/status.json"\n'):
            self.assertEqual([], self.problems(source), source)

    def test_a_kind_of_event_is_named_by_its_owner_alone(self):
        for source in ('run.event("start", {});', 'events(\n    "new", all);',
                       'if (event.kind == "end")', 'f("bad_step");'):
            self.assertEqual(1, len(self.problems(source)), source)
        for source in ('run.event(kHangEvent, {});', 'log("start");', 'fault_kind("end")'):
            self.assertEqual([], self.problems(source), source)

    def test_a_figure_of_a_step_is_named_by_its_owner_alone(self):
        for figure in ("step_time_s", "grad_norm", "memory_peak_bytes", "mfu_causal"):
            self.assertEqual(1, len(self.problems(f'row["{figure}"]')), figure)
        self.assertEqual([], self.problems('row[kGradNormKey]; row["lr"]'))

    def test_tests_and_the_owner_say_what_the_names_are(self):
        self.assertTrue(check_names.in_scope("longhaul/train/log/run_log.cpp"))
        for name in ("longhaul/run/files.h", "longhaul/train/x_test.cpp", "tests/x.cpp",
                     "tests/support/made_up_run.h"):
            self.assertFalse(check_names.in_scope(name))


class Words(unittest.TestCase):
    def test_unfinished_business_is_reported_with_its_line(self):
        found = check_words.problems_of("x.cpp", "a\n// TO" "DO later\n")
        self.assertEqual(["x.cpp:2: 'TO" "DO' left in the tree"], found)

    def test_a_path_of_one_machine_is_reported(self):
        self.assertEqual(1, len(check_words.problems_of("x.md", "see /ho" "me/ann/x")))
        self.assertEqual([], check_words.problems_of("x.md", "runs/ho" "me/ann, /shared/x"))


class Sizes(unittest.TestCase):
    def function(self, lines):
        return "int f(int a) {\n" + "  a++;\n" * (lines - 2) + "}\n"

    def test_a_function_of_80_lines_passes_and_of_81_does_not(self):
        self.assertEqual([], check_sizes.problems_of("x.cpp", self.function(80)))
        self.assertEqual(["x.cpp:1: function of 81 lines, at most 80"],
                         check_sizes.problems_of("x.cpp", self.function(81)))

    def test_a_file_of_601_lines_is_reported(self):
        self.assertEqual([], check_sizes.problems_of("x.cpp", "int a;\n" * 600))
        self.assertEqual(1, len(check_sizes.problems_of("x.cpp", "int a;\n" * 601)))

    def test_a_folder_of_41_source_files_is_reported_and_tests_do_not_count(self):
        names = [f"longhaul/ops/f{i}.cpp" for i in range(40)] + ["longhaul/ops/f_test.cpp"]
        self.assertEqual([], check_sizes.large_folders(names))
        self.assertEqual(["longhaul/ops: 41 source files, at most 40: give it rooms"],
                         check_sizes.large_folders(names + ["longhaul/ops/more.h"]))

    def test_a_brace_in_a_string_does_not_end_a_function(self):
        source = self.function(81).replace("  a++;\n", '  g("\\"}", \'}\'); // }\n', 1)
        self.assertEqual(1, len(check_sizes.problems_of("x.cpp", source)))


class Comments(unittest.TestCase):
    def test_lines_are_kept_and_digit_separators_are_no_characters(self):
        source = "int a = 1'000'000; /* x\ny */ f();\n"
        self.assertEqual("int a = 1'000'000; \n f();\n", house.without_comments(source))


if __name__ == "__main__":
    unittest.main()
