"""The soak of random cases says what failed, how to repeat it, and leaves no process behind."""

import collections
import pathlib
import re
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import differential  # noqa: E402

MODULE = """
import os
import pathlib
import subprocess
import time
from differential import Refused

def draw(rng):
    return {"number": rng.randrange(2 ** 60)}

def check(case, path, run):
    WHAT
"""


@pytest.fixture
def soak(tmp_path, monkeypatch, request):
    """Returns a function that makes a soak of one kind, whose check is the given line."""
    name = "made_up_" + re.sub(r"\W", "_", request.node.name)

    def make(line, limit=30, work="work"):
        (tmp_path / f"random_{name}.py").write_text(MODULE.replace("WHAT", line))
        monkeypatch.syspath_prepend(tmp_path)
        return name, differential.Soak([name], tmp_path / work, limit)

    return make


def test_a_difference_is_counted_kept_and_can_be_repeated(soak, capsys):
    drawn = []
    for work in ("first", "again"):
        kind, ours = soak("assert case['number'] < 0, case", work=work)
        ours.one(kind, "7-3")
        kept, again = re.search(r"kept in (\S+); again: .* --case (\S+)\n",
                                capsys.readouterr().out).groups()
        assert again == f"{kind}:7-3"
        drawn.append((pathlib.Path(kept) / "case.json").read_text())
    assert drawn[0] == drawn[1]
    assert ours.report() == 1
    assert "0 passed, 1 failed" in capsys.readouterr().out


def test_a_refusal_is_listed_with_its_message_and_what_passed_is_removed(soak, capsys, tmp_path):
    kind, ours = soak("if case['number'] % 2: raise Refused('[parallel] too odd')")
    for number in range(20):
        ours.one(kind, f"1-{number}")
    assert ours.report() == 0
    output = capsys.readouterr().out
    refused = output.count("[parallel] too odd")
    assert 0 < refused < 20 and f"{20 - refused} passed, 0 failed" in output
    assert len(list((tmp_path / "work").iterdir())) == refused


def test_a_kind_whose_every_case_is_refused_is_no_success_of_another_kind(soak, capsys):
    kind, ours = soak("raise Refused('[weights] no tokenizer')")
    ours.counts["another"] = collections.Counter(passed=3)
    ours.one(kind, "1-1")
    assert ours.report() == 1
    assert f"nothing was compared: {kind};" in capsys.readouterr().out


def test_a_case_that_hangs_ends_at_its_limit_with_all_that_it_started(soak, capsys):
    kind, ours = soak("p = subprocess.Popen(['sleep', '600'], process_group=0); "
                      "(path.parent / 'pid').write_text(str(p.pid)); p.wait()", limit=1)
    begin = time.monotonic()
    ours.one(kind, "1-1")
    assert time.monotonic() - begin < 20
    assert "not done within 1 s" in capsys.readouterr().out
    stat = pathlib.Path("/proc") / (ours.work / "pid").read_text() / "stat"
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_stopped_soak_still_says_what_it_found(soak, capsys):
    # The case sends SIGTERM, as `timeout` or a batch system would.
    kind, ours = soak("if case['number'] % 4 == 0: os.kill(os.getppid(), 15); time.sleep(9)")
    ours.until(time.monotonic() + 60, None, 1)
    ours.report()
    output = capsys.readouterr().out
    assert "stopped" in output and "0 failed" in output
