"""What a run records of the run from whose checkpoint it begins, and the tree that a report draws."""

import json

from runs import write_config


def branches(run_dir):
    events = map(json.loads, (run_dir / "events.jsonl").read_text().splitlines())
    return [{key: e[key] for key in ("run", "path", "step", "took")} for e in events if e["event"] == "branch"]


def test_a_run_that_begins_from_anothers_checkpoint_records_it_and_the_report_draws_it(run, tmp_path):
    def train(name, *sets):
        run("longhaul", "train", write_config(tmp_path, name), *[w for s in sets for w in ("--set", s)])
        return json.loads((tmp_path / name / "run.json").read_text())["run"]

    base = train("base")
    step4 = tmp_path / "base/checkpoints/step_00000004"
    side = train("side", f'checkpoint.resume="{step4}"')
    train("tuned", f'init.weights="{tmp_path}/side"')
    train("tuned")  # its own checkpoint is the newest now
    assert branches(tmp_path / "base") == []
    assert branches(tmp_path / "side") == [{"run": base, "path": str(step4), "step": 4, "took": "state"}]
    assert branches(tmp_path / "tuned") == [
        {"run": side, "path": str(tmp_path / "side/checkpoints/step_00000008"), "step": 8, "took": "weights"}]

    page = tmp_path / "page.html"
    words = ("longhaul", "report", "tuned", "base", "side", "--out", page)
    run(*words, cwd=tmp_path)
    text = page.read_text()
    assert "side from base at step 4<" in text and "tuned from side at step 8, its weights<" in text
    told = json.loads(run(*words, "--json", cwd=tmp_path).stdout)["runs"]
    assert [r.get("began_from", {}).get("name") for r in told] == ["side", None, "base"]
    run("longhaul", "report", "base", "tuned", "--out", page, cwd=tmp_path)
    assert "began from which" not in page.read_text(), "the run between them is not on the page"
