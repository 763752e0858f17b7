"""tools/same_numbers.sh says "same" of equal numbers only, and names what differs first."""

import copy
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from programs import BIN, SOURCE

sys.path.insert(0, str(SOURCE / "tools" / "same_numbers"))
from cases import CASES, FAMILIES  # noqa: E402
from compare import compare, words_of  # noqa: E402

TOOL = SOURCE / "tools" / "same_numbers.sh"


def point(step, loss, of="training", **more):
    return {"step": str(step), "attempt": "1", "of": of, "loss": loss, **more}


def made_up():
    norm = {"grad_norm": "1.8061246691707349", "lr": "0.001"}
    return {"ranks": 2, "definition": "0123", "seconds": 1.0,
            "points": [point(1, "5.25", **norm), point(2, "5.125", **norm),
                       point(2, "5.5", of="validation held"), point(3, "4.75", **norm)],
            "tensors": {"a.weight": "aa", "b.weight": "bb"},
            "figures": {"parameters": "8 parameters", "memory": "2 MB"}}


def judged(change):
    """What the tool says of a record and of a copy with a change."""
    old = made_up()
    new = copy.deepcopy(old)
    change(new)
    result = compare(old, new)
    return result["verdict"], words_of(result)


def test_equal_records_are_the_same():
    assert judged(lambda new: new.update(seconds=9.0)) == ("same", "")


def test_one_bit_of_one_number_is_named_with_its_step():
    def last_bit(new):
        new["points"][1]["grad_norm"] = "1.8061246691707351"
    assert judged(last_bit) == ("differs", "step 2 grad_norm 1.8061246691707349 -> "
                                "1.8061246691707351 (relative 1.2e-16); no tensor")


def test_of_many_differences_the_first_is_named():
    def several(new):
        new["points"][2]["loss"] = "6.0"
        new["points"][3]["lr"] = "0.002"
        new["tensors"]["b.weight"] = "bc"
    assert judged(several) == ("differs", "validation held, step 2 loss 5.5 -> 6.0 "
                               "(relative 9.1e-02); 1 of 2 tensors, first b.weight")


@pytest.mark.parametrize("change,words", [
    (lambda new: new["tensors"].update({"b.weight": "bc"}), "1 of 2 tensors, first b.weight"),
    (lambda new: new["tensors"].pop("a.weight"), "1 of 2 tensors, first a.weight"),
    (lambda new: new["points"][3].update(loss="null"), "step 3 loss 4.75 -> null; no tensor"),
    (lambda new: new["points"][3].pop("lr"), "step 3 lr 0.001 -> None; no tensor"),
    (lambda new: new["points"].pop(1),
     "step 2 record step 2 -> validation held, step 2; no tensor"),
    (lambda new: new["points"].pop(), "step 3 record 4 records -> 3 records; no tensor"),
])
def test_what_is_other_or_gone_differs(change, words):
    assert judged(change) == ("differs", words)


def test_figures_that_move_alone_are_told_apart():
    assert judged(lambda new: new["figures"].update(memory="3 MB")) == (
        "figures", "numbers are the same; memory: 2 MB -> 3 MB")


def test_what_did_not_run_is_not_the_same():
    def fail(new):
        new["failed"] = "start 1 of 1: ended with 1"
    assert judged(fail) == ("failed", "new: start 1 of 1: ended with 1")
    both = {"ranks": 1, "definition": "0", "failed": "x"}
    assert compare(both, both)["verdict"] == "failed"
    assert compare(made_up(), None)["verdict"] == "absent"
    assert judged(lambda new: new.update(definition="4567"))[0] == "redefined"


def test_names_are_names_of_one_case_each():
    assert len({case.name for case in CASES}) == len(CASES) > 120
    assert len({case.definition() for case in CASES}) == len(CASES)
    assert max(case.ranks for case in CASES) == 8


def tool(*words, code, tool=TOOL):
    done = subprocess.run([tool, *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path.parent


def test_a_build_is_the_same_as_itself_and_not_as_one_that_rounds_otherwise(tmp_path):
    real = BIN / "longhaul"
    other = program(tmp_path / "other" / "longhaul", f"""
        [ "$1" = train ] || exec {real} "$@"
        exec {real} "$@" --set optimizer.eps=1.01e-8""")
    before = tmp_path / "before.json"
    tool("--record", before, BIN, "--only", "one_fp32", code=0)
    same = json.loads(tool(before, BIN, "--only", "one_fp32", "--json", code=0).stdout)
    assert same["cases"]["one_fp32"] == {"ranks": 1, "verdict": "same", "first": None,
                                         "tensors": [], "tensors_in_all": 39, "figures": []}
    done = tool(before, other, "--only", "one_fp32", "--keep", tmp_path / "runs", code=1)
    assert re.search(r"DIFFERS +step [2-6] \w+ \S+ -> \S+ \(relative ", done.stdout)
    # Tensors whose gradients are far above Adam's eps may be the same in both.
    assert " of 39 tensors, first lm_head.weight" in done.stdout
    assert (tmp_path / "runs" / "new" / "one_fp32" / "run" / "metrics.jsonl").exists()
    record = json.loads(before.read_text())["cases"]["one_fp32"]
    assert [p["step"] for p in record["points"]] == list("123456")
    assert record["figures"].keys() >= {"parameters", "memory", "flops per step", "batches",
                                        "causal flops per step", "numerics libtorch"}


def test_a_case_that_does_not_run_is_told_as_failed(tmp_path):
    real = BIN / "longhaul"
    broken = program(tmp_path / "longhaul", f"""
        [ "$1" = train ] || exec {real} "$@"
        echo 'longhaul: error: [numerics] out of luck' >&2; exit 1""")
    done = tool(broken, broken, "--only", "one_fp32", code=1)
    assert "FAILED" in done.stdout and "1 cases: 1 FAILED" in done.stdout
    assert done.stdout.count("start 1 of 1: ended with 1, not 0: longhaul: error: [numerics] "
                             "out of luck") == 2
    tool("--record", tmp_path / "record.json", broken, "--only", "one_fp32", code=1)


@pytest.mark.soak
def test_a_case_that_is_handed_over_is_begun_by_the_old_program(tmp_path):
    real = BIN / "longhaul"
    old = program(tmp_path / "longhaul", f"""
        [ "$1" = train ] || exec {real} "$@"
        echo 'longhaul: error: [numerics] begun by the old one' >&2; exit 1""")
    handed_over = [case for case in CASES if case.handed_over]
    assert {case.family for case in handed_over} == set(FAMILIES)
    done = tool(old, BIN, "--only", "llama_handed_over", "--json", code=1)
    assert "new: start 1 of 2: ended with 1, not 0: longhaul: error: [numerics] begun by the old" in done.stderr
    (case,) = json.loads(done.stdout)["cases"].values()
    assert case["verdict"] == "failed"
    assert "same" in tool(BIN, BIN, "--only", "llama_handed_over", code=0).stdout


@pytest.mark.parametrize("words,said", [
    ([], "2 of OLD and NEW are needed"),
    (["nonsense", BIN], "'nonsense' is no directory with the program longhaul"),
    ([pathlib.Path(__file__).parent, BIN], "holds no program longhaul"),
    ([__file__, BIN], "is no file that --record wrote"),
    ([BIN, BIN, "--only", "nothing*"], "no case is named like nothing*"),
])
def test_a_call_that_cannot_be_carried_out_ends_with_2(words, said):
    assert said in tool(*words, code=2).stderr


BUILD = """\
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES NONE)
add_custom_target(longhaul COMMAND ${CMAKE_COMMAND} -E copy
  ${CMAKE_SOURCE_DIR}/longhaul ${CMAKE_SOURCE_DIR}/longhaul-torch ${CMAKE_BINARY_DIR}/bin/)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
"""
PRESETS = {"version": 6, "configurePresets": [
    {"name": "cpu-release", "generator": "Ninja", "binaryDir": "${sourceDir}/build"}]}


def small_repository(root):
    """Two commits of a project whose programs are scripts; the second does not build."""
    shutil.copytree(TOOL.parent / "same_numbers", root / "tools" / "same_numbers")
    shutil.copy(TOOL, root / "tools")
    program(root / "tools" / "deps.sh", "touch deps-ran")
    program(root / "longhaul", "[ $1 = --version ] && echo commit small || exit 1")
    program(root / "longhaul-torch", "")
    (root / ".gitignore").write_text("build\n.cache/\n.venv/\n")
    (root / ".cache").mkdir()
    (root / "CMakePresets.json").write_text(json.dumps(PRESETS))
    for number, text in enumerate((BUILD, BUILD + "message(FATAL_ERROR nothing)\n")):
        (root / "CMakeLists.txt").write_text(text)
        for words in (["init", "-q", "-b", "main"], ["add", "-A"],
                      ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
                      ["tag", f"v{number}"]):
            subprocess.run(["git", "-C", root, *words], check=True)
    return root / "tools" / "same_numbers.sh"


@pytest.mark.soak
def test_a_commit_is_built_in_a_worktree_of_its_own(tmp_path):
    script = small_repository(tmp_path)
    only = ["--only", "one_fp32"]
    done = tool("v0", "v0", *only, code=1, tool=script)  # the script trains nothing
    assert "old: " in done.stdout and "(commit small)" in done.stdout and "FAILED" in done.stdout
    (tree,) = [p for p in (tmp_path / "build" / "same_numbers").iterdir() if p.is_dir()]
    assert (tree / "build" / "bin" / "longhaul").exists() and (tree / "deps-ran").exists()
    assert (tree / ".cache").is_symlink() and not (tree / ".venv").exists()
    done = tool("v0", "v1", *only, code=2, tool=script)
    assert "'cmake --preset cpu-release' ended with 1" in done.stderr
    assert "CMake Error" in done.stderr
    (tree / "longhaul").write_text("changed")
    assert "remove it" in tool("v0", "v0", *only, code=2, tool=script).stderr
