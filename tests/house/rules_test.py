"""The house rules find what they are there for: each planted violation is reported."""

import pathlib
import subprocess
import tempfile
import types
import unittest

import check_calls
import check_comments
import check_elf
import check_includes
import check_messages
import check_names
import check_pages
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


class Elf(unittest.TestCase):
    def problems(self, ours=True, guarded=False, **other):
        """The problems of a file that is as it should be, except for `other`."""
        good = {"run_paths": [["/opt/lib", "$ORIGIN/../lib"]], "needed": ["libz.so.1", "/lib/x.so"],
                "segments": {check_elf.PT_GNU_STACK: 6, check_elf.PT_GNU_RELRO: 4},
                "tags": {check_elf.DT_FLAGS: 8}, "guards_stacks": True}
        return check_elf.problems_of(types.SimpleNamespace(**(good | other)), ours, guarded)

    def test_an_empty_or_relative_entry_is_reported_wherever_it_stands(self):
        self.assertEqual([], self.problems())
        for entries in (["/a", ""], [""], ["", "/a"], ["/a", "lib"], ["."], ["$LIB/x"]):
            self.assertEqual(1, len(self.problems(run_paths=[entries])), entries)
            self.assertEqual(1, len(self.problems(ours=False, run_paths=[["/a"], entries])), entries)

    def test_a_library_named_by_a_relative_path_and_an_executable_stack_are_reported(self):
        self.assertEqual(1, len(self.problems(needed=["./libz.so.1"])))
        for stack in ({}, {check_elf.PT_GNU_STACK: 7}):
            segments = {check_elf.PT_GNU_RELRO: 4, **stack}
            self.assertEqual(1, len(self.problems(segments=segments)), stack)

    def test_what_is_ours_is_bound_at_the_start_and_read_only_afterwards(self):
        self.assertEqual(1, len(self.problems(tags={})))
        self.assertEqual([], self.problems(ours=False, tags={}))
        self.assertEqual([], self.problems(tags={check_elf.DT_FLAGS_1: 1}))
        self.assertEqual(1, len(self.problems(segments={check_elf.PT_GNU_STACK: 6})))

    def test_a_program_without_guarded_stacks_is_reported_where_they_are_asked_for(self):
        library = {check_elf.PT_GNU_STACK: 6, check_elf.PT_GNU_RELRO: 4}
        program = {check_elf.PT_INTERP: 4, **library}
        self.assertEqual([], self.problems(guarded=True, segments=program))
        for segments, guarded, count in ((program, True, 1), (library, True, 0), (program, False, 0)):
            self.assertEqual(count, len(self.problems(guarded=guarded, segments=segments,
                                                      guards_stacks=False)))

    def test_a_real_file_has_what_patchelf_wrote_into_it(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "true"
            copy.write_bytes(pathlib.Path("/bin/true").read_bytes())
            subprocess.run(["patchelf", "--set-rpath", "/opt/x:", copy], check=True)
            (pathlib.Path(folder) / "text").write_text("no program")
            problems, checked = check_elf.check([folder], ours=False)
            self.assertIn("libc.so.6", check_elf.read(copy).needed)
        self.assertEqual(1, checked)
        self.assertEqual([f"{copy}: searches '' of the working directory for libraries"], problems)


class Includes(unittest.TestCase):
    def problems(self, name, *targets):
        return check_includes.problems_of(name, "".join(f"#include {t}\n" for t in targets))

    def test_a_folder_may_include_its_row_and_what_that_row_includes(self):
        self.assertEqual([], self.problems("longhaul/nn/x.cpp", '"longhaul/ops/rope.h"',
                                           '"longhaul/comm/mesh.h"', "<ATen/core/Tensor.h>",
                                           '"longhaul/base/error.h"'))

    def test_models_and_parallel_never_see_each_other(self):
        for name, other in (("models", "parallel"), ("parallel", "models")):
            found = self.problems(f"longhaul/{name}/x.cpp", f'"longhaul/{other}/y.h"')
            self.assertEqual([f"longhaul/{name}/x.cpp:1: {name} may not include {other} "
                              f"(longhaul/{other}/y.h)"], found)

    def test_a_room_includes_the_rooms_before_it_and_none_behind_it(self):
        self.assertEqual([], self.problems("longhaul/cluster/agent/x.cpp",
                                           '"longhaul/cluster/control/channel.h"'))
        self.assertEqual(["longhaul/cluster/control/x.cpp:1: cluster/control may not include "
                          "cluster/agent (longhaul/cluster/agent/y.h)"],
                         self.problems("longhaul/cluster/control/x.cpp",
                                       '"longhaul/cluster/agent/y.h"'))
        self.assertEqual(1, len(self.problems("apps/try/x.cpp", '"apps/verbs/import_flags.h"')))

    def test_a_folder_and_its_room_that_include_each_other_are_reported(self):
        up, down = "longhaul/ops/node.h", "longhaul/ops/linear/linear.h"
        both = {"longhaul/ops/rope.cpp": down, "longhaul/ops/linear/x.cpp": up}
        sources = {name: f'#include "{target}"\n' for name, target in both.items()}
        self.assertEqual([f"longhaul/ops and its room longhaul/ops/linear include each other: "
                          f"longhaul/ops/rope.cpp includes {down}; longhaul/ops/linear/x.cpp includes {up}"],
                         check_includes.circles(sources))
        for name in both:
            self.assertEqual([], check_includes.circles({name: sources[name]}))
        tested = {"longhaul/ops/rope.cpp": sources["longhaul/ops/rope.cpp"],
                  "longhaul/ops/linear/x_test.cpp": sources["longhaul/ops/linear/x.cpp"]}
        self.assertEqual([], check_includes.circles(tested))
        deep = {"apps/a/b/x.h": '#include "apps/a/y.h"\n', "apps/a/y.cpp": '#include "apps/a/b/x.h"\n'}
        self.assertEqual(1, len(check_includes.circles(deep)))

    def test_a_header_declares_its_names_in_the_namespace_of_its_folder(self):
        def found(name, space):
            return check_includes.problems_of(name, f"#pragma once\n\nnamespace {space} {{\n}}\n")

        self.assertEqual(["longhaul/layout/pipeline/x.h:1: the names of this header belong into "
                          "namespace longhaul::layout"],
                         found("longhaul/layout/pipeline/x.h", "longhaul"))
        self.assertEqual([], found("longhaul/layout/pipeline/x.h", "longhaul::layout"))
        self.assertEqual([], found("longhaul/base/x.h", "longhaul"))

    def test_what_tests_share_is_for_tests_alone(self):
        shared = '"tests/support/fake_ranks.h"'
        self.assertEqual([], self.problems("longhaul/comm/x_test.cpp", shared))
        self.assertEqual(1, len(self.problems("longhaul/comm/x.cpp", shared)))

    def test_base_includes_no_other_folder(self):
        self.assertEqual(1, len(self.problems("longhaul/base/x.cpp",
                                              '"longhaul/format/dtype.h"')))

    def test_format_may_include_config_but_not_the_reverse(self):
        self.assertEqual([], self.problems("longhaul/format/x.cpp", '"longhaul/config/load.h"'))
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

    def test_a_way_of_includes_leads_through_the_sources_of_headers(self):
        tree = {"apps/a.cpp": '#include "longhaul/infer/b.h"\n', "longhaul/infer/b.h": "",
                "longhaul/infer/b.cpp": '#include "longhaul/infer/b.h"\n#include "longhaul/base/c.h"\n',
                "longhaul/base/c.h": "", "longhaul/optim/d.h": "",
                "longhaul/base/other.cpp": '#include "longhaul/base/c.h"\n#include "longhaul/optim/d.h"\n'}
        self.assertEqual(["apps/a.cpp", "longhaul/infer/b.h", "longhaul/infer/b.cpp", "longhaul/base/c.h",
                          "longhaul/base/other.cpp", "longhaul/optim/d.h"],
                         check_includes.way_to(["apps/a.cpp"], ("train", "optim"), tree))
        self.assertEqual([], check_includes.way_to(["apps/a.cpp"], ("train",), tree))


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

    def test_a_folder_to_which_everything_comes_has_room_for_more(self):
        for folder in ("apps", "longhaul/base", "longhaul/config", "longhaul/families", "longhaul/imports"):
            names = [f"{folder}/f{i}.cpp" for i in range(36)]
            self.assertEqual([], check_sizes.large_folders(names))
            self.assertEqual([f"{folder}: 37 source files, at most 36: give it rooms"],
                             check_sizes.large_folders(names + [f"{folder}/more.h"]))

    def test_a_brace_in_a_string_does_not_end_a_function(self):
        source = self.function(81).replace("  a++;\n", '  g("\\"}", \'}\'); // }\n', 1)
        self.assertEqual(1, len(check_sizes.problems_of("x.cpp", source)))


class DocComments(unittest.TestCase):
    def above(self, comment, declaration="int rank();"):
        source = "".join(f"/// {line}\n" for line in comment.split("\n")) + declaration + "\n"
        return check_comments.problems_of("x.h", source)

    def test_a_comment_above_a_function_begins_with_a_verb_or_a_condition(self):
        for comment in ("The rank of this process.", "Bytes that were read.", "InputError if wrong.",
                        "What an event says.", "True when it is gone.", "Names of all tensors.",
                        "Whether a run is there.", "Nothing where there is none.", "One line."):
            self.assertEqual(1, len(self.above(comment)), comment)
        for comment in ("Returns the rank.", "Throws InputError where the file is damaged.",
                        "When the run has ended, it reads the rest.", "Collective. Returns the sum.",
                        "Names the file.", "Also returns it.", "Must be called by rank 0.",
                        "`group` must outlive it.", "Re-hashes every shard."):
            self.assertEqual([], self.above(comment), comment)

    def test_a_fragment_is_reported_wherever_it_stands(self):
        for fragment in ("Of those that are put off.", "Likewise.", "The same by one rank.",
                         "So many bytes.", "As above.", "Those of this node.", "That of the head.",
                         "Nothing where it has none.", "InputError where it is damaged.",
                         "Not from a thread.", "Errors as above."):
            self.assertEqual(1, len(self.above(f"Returns the rank. {fragment}")), fragment)
            self.assertEqual(1, len(self.above(f"A queue. {fragment}", "class Queue {")), fragment)
        for sentence in ("Nothing is thrown.", "The same rank answers.", "That is rare.",
                         "As rank 0 writes, the others are idle.", "Not thread-safe.", "Collective.",
                         "Those ranks wait.", "All outlive it."):
            self.assertEqual([], self.above(f"Returns the rank. {sentence}"), sentence)

    def test_a_type_and_a_member_may_be_a_noun(self):
        self.assertEqual([], self.above("Gradients that are deferred.", "struct Deferred {"))
        self.assertEqual([], self.above("Seconds since the last step.", "double age = 0.0;"))
        self.assertEqual([], self.above("A line for a person. It may be empty.",
                                        "std::function<void(const std::string&)> tell;"))

    def test_a_comment_behind_a_member_needs_no_sentence_but_a_subject(self):
        for text, problems in (("seconds since the last step", 0), ("likewise", 1),
                               ("of them, by the newest", 1), ("of the file", 0),
                               ("the same on all ranks", 1)):
            found = check_comments.problems_of("x.h", f"  int a = 0;  ///< {text}\n")
            self.assertEqual(problems, len(found), text)

    def test_a_sentence_of_36_words_is_reported_over_its_lines(self):
        for words, problems in ((35, 0), (36, 1)):
            comment = "Returns" + " the\nrank" * ((words - 1) // 2) + " x" * ((words - 1) % 2) + "."
            self.assertEqual(problems, len(self.above(comment)), comment)

    def test_a_list_and_a_formula_are_no_sentences(self):
        self.assertEqual([], self.above("Returns one of:\n- 0: done;\n- 1: the same\n  again\n"
                                        "\nReads none."))
        self.assertEqual([], self.above("Returns the sum.\n  of x times y\n  Of it"))

    def test_a_file_may_have_what_the_baseline_says_and_the_baseline_only_shrinks(self):
        problems = {"a.h": ["a.h:1: x", "a.h:2: y"], "b.h": ["b.h:1: z"]}
        self.assertEqual([], check_comments.RULE.compare(problems, {"a.h": 2, "b.h": 1}))
        self.assertEqual(["b.h:1: z", "b.h: 1 comments to mend, at most 0"],
                         check_comments.RULE.compare(problems, {"a.h": 2}))
        high, = check_comments.RULE.compare(problems, {"a.h": 2, "b.h": 4})
        self.assertIn("check_comments.py --write", high)
        self.assertIn("c.h", check_comments.RULE.compare(problems, {"a.h": 2, "b.h": 1, "c.h": 1})[0])
        self.assertEqual("1 a.h\n1 b.h\n",
                         check_comments.RULE.lowered(problems, {"a.h": 1, "b.h": 4, "c.h": 2}))
        self.assertEqual("2 a.h\n1 b.h\n", check_comments.RULE.lowered(problems, None))


class LineComments(unittest.TestCase):
    def problems(self, comment, code="  return 0;"):
        source = "".join(f"  // {line}\n" for line in comment.split("\n")) + code + "\n"
        return check_comments.problems_of("x.cpp", source)

    def test_what_a_reader_cannot_know_is_reported(self):
        for comment in (
                "For the next start.", "A device that is counted and cannot be reached.",
                "Late enough for a checkpoint, and for two where the newest is damaged.",
                "Known when all ranks are there.", "What the store refuses says nothing.",
                "Whoever reads it reports the link.", "The lock is shared by who uses the copy.",
                "It went while it was read.", "These stay squares until the end.",
                "One that is ahead is believed.", "Its process has to be small.",
                "Nor has a run without two steps.", "So NFS says that the file is gone.",
                "Out of descriptors: the next sweep tries again.",
                "Parts of other attempts are free: they are deleted first.",
                "All ranks write to rank 0's.",
                "Sorted by number, so that the order does not depend on addresses.", "Reads the ckpt of the last step."):
            self.assertEqual(1, len(self.problems(comment)), comment)

    def test_a_whole_sentence_passes(self):
        for comment in (
                "The store refuses the object.", "A run that goes on may have deleted it.",
                "A rank that wants the chunk and can read it does.", "Returns the lines of a file.",
                "The loss of a node says nothing of the step in which it happened.",
                "An empty file counts as one byte.", "Files of this type name wrong classes.",
                "The size of the world that a file names may be wrong.",
                "A text file such as test_a.py names no split.", "Thousands of starts take seconds.",
                "This is a Fisher-Yates shuffle that ends early.", "Waits for the last copy to arrive.",
                "Two forms are known: files and directories.", "The key is its own: `hash`."):
            self.assertEqual([], self.problems(comment), comment)

    def test_a_phrase_may_stand_above_a_declaration_and_above_no_statement(self):
        phrase = "Digits of the hash of a directory."
        self.assertEqual([], self.problems(phrase, "constexpr size_t kDigits = 8;"))
        self.assertEqual([], self.problems(phrase, "  int64_t digits_ = 8;  ///< at most 16"))
        self.assertEqual(1, len(self.problems(phrase, "  take(8);")))
        self.assertEqual(1, len(self.problems("For the next start.", "constexpr int kNext = 1;")))

    def test_a_comment_behind_code_says_what_it_is_about(self):
        for text, problems in (("bytes of the header", 0), ("of the header", 1), ("it lives", 1),
                               ("the first of all", 0), ("what a save has left", 1)):
            found = check_comments.problems_of("x.cpp", f"  int a = 0;  // {text}\n")
            self.assertEqual(problems, len(found), text)

    def test_code_marks_tables_and_strings_are_no_sentences(self):
        for source in ('  const char* at = "http://For the start.";\n',
                       'const char* s = R"js(\n// For the start.\n)js";\n',
                       "  f();  // NOLINT(of_this)\n}  // namespace longhaul\n",
                       "// DIR/ID/NAME   the copy of an object\n// DIR/ID.lock   for one process\nint a;\n"):
            self.assertEqual([], check_comments.problems_of("x.cpp", source), source)

    def test_a_sentence_of_36_words_is_reported(self):
        comment = "The rank" + " reads and" * 16 + " ends."
        self.assertEqual([], self.problems(comment))
        self.assertEqual(1, len(self.problems(comment[:-1] + " so.")))


class Pages(unittest.TestCase):
    def problems(self, page):
        return check_pages.problems_of("x.md", page)

    def test_a_long_sentence_and_a_long_paragraph_are_reported_where_they_begin(self):
        long = "One " + "more " * 35 + "word."
        self.assertEqual([], self.problems("One " + "more " * 33 + "word."))
        found, = self.problems(f"# Head\n\nShort.\n{long}\n")
        self.assertIn("x.md:3: a sentence of 37 words", found)
        many = "Five words are in this.\n" * 25
        self.assertIn("x.md:2: a paragraph of 125 words", self.problems("\n" + many)[0])
        self.assertEqual([], self.problems(many[:120 * 4] + "\n\n" + many[120 * 4:]))

    def test_tables_code_and_output_are_left_out_and_items_stand_alone(self):
        words = "word " * 40
        for text in (f"| {words} |", f"    {words}", f"```\n{words}\n```", f"> {words}", f"# {words}"):
            self.assertEqual([], self.problems(text + "\n"), text)
        item = "- " + "word " * 20
        self.assertEqual([], self.problems(f"{item}\n{item}\n"))
        self.assertEqual(1, len(self.problems(f"{item}\n  {item[2:]}\n")))

    def test_a_link_is_its_words_and_a_piece_of_code_one_word(self):
        self.assertEqual("See the page and `code`.",
                         check_pages.plain("See [the page](a.md#b-c) and `one two three`."))


class Messages(unittest.TestCase):
    def problems(self, source):
        return check_messages.problems_of("apps/x.cpp", source)

    def test_a_sentence_of_36_words_is_reported_where_its_text_begins(self):
        self.assertEqual([], self.problems('fail("The' + " word" * 34 + '.");'))
        found, = self.problems('int a;\nfail("The' + " word" * 35 + '.");')
        self.assertTrue(found.startswith("apps/x.cpp:2: a sentence of 36 words, at most 35: The"))

    def test_the_strings_of_one_text_are_one(self):
        half = "the" + " word" * 17
        for between in ('"\n  "', '" // why\n"', '" + name + "', '" +\n  "', r"\n"):
            self.assertEqual(1, len(self.problems(f'say("{half} {between}{half} ends");')), between)
        for apart in (". The ", '", "', '"); say("', r"\n\n", r"\n  "):
            self.assertEqual([], self.problems(f'say("{half}{apart}{half} ends");'), apart)

    def test_scripts_lists_of_names_and_comments_are_left_out(self):
        long = "the" + " word" * 40
        for source in (f'run(R"sh({long})sh");', f"// {long}", f"/* \"{long}\" */",
                       '"' + "nodes ntasks " * 30 + '"'):
            self.assertEqual([], self.problems(source), source)


class Comments(unittest.TestCase):
    def test_lines_are_kept_and_digit_separators_are_no_characters(self):
        source = "int a = 1'000'000; /* x\ny */ f();\n"
        self.assertEqual("int a = 1'000'000; \n f();\n", house.without_comments(source))


if __name__ == "__main__":
    unittest.main()
