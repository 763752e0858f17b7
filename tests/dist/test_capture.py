"""Captured tensors of two layouts are compared in global coordinates."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import write_config  # noqa: E402

SETS = ['precision.compute="fp32"', "run.steps=3", "checkpoint.every=0", "profile.steps=[2]"]


def train(run, path, *sets, ranks=1):
    run("longhaul", "train", path, *[w for s in [*SETS, *sets] for w in ("--set", s)],
        ranks=ranks, env={"OMP_NUM_THREADS": "1"})


def rows(run, first, second, *arguments, check=True):
    result = run("longhaul", "compare", first, second, "--json", *arguments, check=check)
    return {(r["kind"], r["name"]): r for r in json.loads(result.stdout)}, result.returncode


@pytest.fixture(scope="module")
def one_rank(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("one")
    train(run, write_config(path), "debug.capture={steps=[1]}")
    return path / "run"


CAPTURE = "captures/step_00000001"
ACTIVATIONS = {"embedding", "layers.0", "layers.1"}


@pytest.mark.parametrize("ranks,sets", [
    (4, ["parallel.tp=2", "parallel.cp=2"]),
    (4, ["parallel.pp=2", "parallel.zero=1"]),
    (2, ["parallel.zero=3", 'memory.recompute="full"']),
])
def test_every_tensor_of_a_layout_is_that_of_one_rank(run, tmp_path, one_rank, ranks, sets):
    train(run, write_config(tmp_path), "debug.capture={steps=[1]}", *sets, ranks=ranks)
    found, _ = rows(run, tmp_path / "run" / CAPTURE, one_rank / CAPTURE)
    for kind in ("activation", "activation_gradient"):
        assert {name for k, name in found if k == kind} == ACTIVATIONS
        for name in ACTIVATIONS:
            assert found[kind, name]["elements"] == 8 * 32 * 64
    assert sum(k == "gradient" for k, _ in found) == 21
    assert all(r["verdict"] in ("ok", "equal") for r in found.values())
    assert all(r["norm"] > 0 for r in found.values())


def test_chosen_ranks_and_names_are_written_alone(run, tmp_path, one_rank):
    train(run, write_config(tmp_path),
          'debug.capture={steps=[1], ranks=[1], tensors=["*layers.1", "gradient.*norm*"]}',
          ranks=2)
    found, _ = rows(run, tmp_path / "run" / CAPTURE, one_rank / CAPTURE)
    both = {key for key, r in found.items() if r["elements"] > 0}
    assert {name for k, name in both if k == "activation"} == {"layers.1"}
    assert found["activation", "layers.1"]["elements"] == 8 * 32 * 64 // 2
    assert {name for k, name in both if k == "gradient"} <= {
        n for k, n in found if "norm" in n}
    assert found["activation", "layers.0"]["verdict"] == "not in both"


@pytest.mark.parametrize("setting,words", [
    ('debug.capture={steps=[1], tensors=["layers.1", "gradient.*lm_haed*"]}',
     '"gradient.*lm_haed*" matches nothing; what can be captured is activation.embedding, '
     'activation.layers.0 to 1,'),
    ('debug.faults=[{step = 1, kind = "bit_flip", tensor = "lm_haed.weight"}]',
     'tensor = "lm_haed.weight" is none of the model\'s parameters'),
])
def test_a_name_that_the_model_does_not_have_is_refused_before_the_first_step(
        run, tmp_path, setting, words):
    done = run("longhaul", "train", write_config(tmp_path), "--set", setting, check=False)
    assert done.returncode == 78, done.stdout
    assert f"[config] --set {setting}: debug." in done.stderr and words in done.stderr
    assert not (tmp_path / "run/metrics.jsonl").read_text()


def test_ranks_and_steps_that_the_run_does_not_have_are_told(run, tmp_path):
    sets = ["run.steps=3", "checkpoint.every=0", "profile.steps=[2, 4]",
            "debug.capture={steps=[5], ranks=[2]}",
            'debug.delays=[{phase = "load", seconds = 1, rank = 3}]',
            'debug.faults=[{step = 6, kind = "spike", rank = 4}]']
    done = run("longhaul", "train", write_config(tmp_path),
               *[w for s in sets for w in ("--set", s)])
    for words in ("profile.steps names step 4, but run.steps = 3: nothing happens then",
                  "debug.capture names step 5, ", "debug.capture names rank 2, but this run has "
                  "1 rank, from 0 on: nothing happens there",
                  "debug.delays names rank 3, ", "debug.faults names step 6, ",
                  "debug.faults names rank 4, "):
        assert done.stdout.count(words) == 1, (words, done.stdout)
    assert done.stdout.count(": nothing happens t") == 6


def test_gradients_are_chosen_by_the_names_of_hugging_faces_files_too(run, tmp_path):
    path = write_config(tmp_path)
    (tmp_path / "model/config.json").write_text(json.dumps({
        "model_type": "gpt2", "vocab_size": 300, "n_embd": 64, "n_layer": 1, "n_head": 4,
        "n_positions": 64, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}))
    train(run, path, 'debug.capture={steps=[1], tensors=["gradient.*c_attn.weight"]}')
    place = tmp_path / "run" / CAPTURE
    found, _ = rows(run, place, place)
    assert {name.split("attn.")[1] for _, name in found} == {
        "q_proj.weight", "k_proj.weight", "v_proj.weight"}


def test_another_seed_differs_and_says_so_by_exit_code(run, tmp_path, one_rank):
    train(run, write_config(tmp_path), "debug.capture={steps=[1]}", "run.seed=7")
    found, code = rows(run, tmp_path / "run" / CAPTURE, one_rank / CAPTURE, check=False)
    assert code == 1
    assert found["gradient", "lm_head.weight"]["verdict"] == "DIFFERS"
    # Checkpoints are compared in the same way as captures.
    _, code = rows(run, tmp_path / "run", tmp_path / "run", "--tolerance", "0")
    assert code == 0


def test_a_timeline_has_the_actions_of_every_rank(run, tmp_path):
    train(run, write_config(tmp_path), "parallel.pp=2", ranks=2)
    events = json.loads((tmp_path / "run/trace_step_2.json").read_text())
    actions = {(e["pid"], e["name"]) for e in events if e["tid"] == 0}
    for rank in (0, 1):
        for micro_batch in range(4):
            for kind in "FBW":
                assert (rank, f"{kind}0.{micro_batch}") in actions
    operations = {(e["pid"], e["name"]) for e in events if e["tid"] == 4}
    blocks = {(e["pid"], e["name"]) for e in events if e["tid"] == 3}
    for rank in (0, 1):
        assert (rank, "aten::mm") in operations
        assert {(rank, f"layer {rank}"), (rank, f"layer {rank} backward")} <= blocks
    # The second stage waits for the first one's messages.
    assert any(e["pid"] == 1 and e["tid"] == 5 and e["name"].startswith("wait: ")
               for e in events)


def test_a_profile_is_a_table_in_log_and_report(run, tmp_path):
    train(run, write_config(tmp_path), "profile.steps=[]", "profile.every=2")
    log = (tmp_path / "run/log.txt").read_text()
    assert "profile of step 2: " in log and "profile of step 3: " not in log
    assert "outside of operations" in log
    assert not list((tmp_path / "run").glob("trace_step_*"))
    rows = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    (event, *_) = [r for r in rows if r["event"] == "profile"]
    told = sum(o["seconds"] for o in event["operations"])
    assert 0 < told <= event["seconds"]  # how large a part depends on what else the machine does
    run("longhaul", "report", tmp_path / "run", "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Profile of step" in page and "aten::mm" in page
