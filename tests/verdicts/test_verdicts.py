"""`longhaul config run.toml --ranks N` says what `longhaul train` says on N ranks: exit code and
words, for the layouts of cases.jsonl (record_verdicts.py says how they were recorded).

known_differences.txt lists where it does not, by the reason. A difference that is not listed fails,
and so does one that is listed and no more there; an empty list means that the two always agree.
"""

import collections
import concurrent.futures
import json
import pathlib
import subprocess

import pytest
from case_files import read_cases, verdict_of, write_case
from mistakes import MISTAKES
from record_verdicts import draw_all
from rules import ruling

HERE = pathlib.Path(__file__).parent
FEWEST = 3  # cases of each rule
# Mistakes that have no rule of their own: another rule refuses them, or none does.
NO_RULE = {"a partition with zeros", "shard_group past 32 bits"}


@pytest.fixture(scope="module")
def cases():
    return read_cases(HERE / "cases.jsonl")


def known_differences():
    """case -> the reason why `config` says something else than `train`."""
    known = {}
    for line in (HERE / "known_differences.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            reason, _, numbers = line.rpartition(":")
            for number in map(int, numbers.split()):
                assert number not in known, f"case {number} is listed twice"
                known[number] = reason
    return known


def said_by_config(binary, path, case):
    write_case(case, path)
    result = subprocess.run([binary("longhaul"), "config", "run.toml", "--ranks",
                             str(case["ranks"])], capture_output=True, text=True, cwd=path)
    return verdict_of(result)


def test_config_refuses_what_train_refuses_in_the_same_words(binary, cases, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda case: said_by_config(
            binary, tmp_path / str(case["id"]), case), cases))
    different = {case["id"]: f"case {case['id']}:\n  train   {case['verdict']}\n  config  {words}"
                 for case, words in zip(cases, said) if words != case["verdict"]}
    known = known_differences()
    new = [text for number, text in different.items() if number not in known]
    gone = [number for number in known if number not in different]
    assert not new, "not in known_differences.txt:\n" + "\n".join(new)
    assert not gone, f"in known_differences.txt, and no more different: {gone}"


def test_the_rules_said_a_second_time_give_every_recorded_verdict(cases):
    """The verdicts on more ranks than were started rely on rules.py, so its rules must give every
    recorded verdict."""
    wrong = [(case["id"], case["verdict"], ruling(case)[0])
             for case in cases if ruling(case)[0] != case["verdict"]]
    assert not wrong, wrong


def test_every_rule_refuses_some_cases(cases):
    count = collections.Counter(ruling(case)[1] for case in cases if case["by"] == "train")
    assert set(count) >= {"accepted", *MISTAKES} - NO_RULE
    assert min(count.values()) >= FEWEST, count
    assert 0.4 < count["accepted"] / sum(count.values()) < 0.6


def test_the_cases_are_those_that_are_drawn(cases):
    drawn = [json.dumps(case) for case in draw_all()]
    kept = [{k: v for k, v in case.items() if k not in ("verdict", "by")} for case in cases]
    assert drawn == [json.dumps(case) for case in kept]
