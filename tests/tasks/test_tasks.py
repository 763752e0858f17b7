"""Tasks of lm-eval within this program: each answer is that of transformers by lm-eval's rules, in every
layout; runs measure tasks beside their validations, and refuse wrong files at the start."""

import csv
import json
import pathlib
import shutil
import sys

import pytest
import torch
import transformers
from models import BASE, model_of
from programs import SOURCE, later, split

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(SOURCE / "tests" / "e2e"))
from reference import Peer, figures_of, requests_of, scores_of  # noqa: E402
from refusals import refused, training_refused  # noqa: E402

FIXTURES = SOURCE / "tests" / "fixtures" / "tasks"
DELIMITERS = {"choices": " ", "pairs": "", "schema": " ", "cloze": "", "texts": ""}
LENGTH = 48  # shorter than some contexts
TOLERANCE = 1e-4
WEIGHTS = {**BASE, "initializer_range": 0.1, "pad_token_id": 2, "bos_token_id": 0, "eos_token_id": 1,
           "num_key_value_heads": 2, "tie_word_embeddings": True, "num_hidden_layers": 2}
MODELS = {
    "dense": lambda: transformers.LlamaConfig(**WEIGHTS),
    "experts": lambda: transformers.MixtralConfig(**WEIGHTS, num_local_experts=4, num_experts_per_tok=2),
}
# For each case the model, the number of ranks, and the layout.
LAYOUTS = {
    "one": ("dense", 1, []),
    "experts": ("experts", 1, []),
    "tp2": ("dense", 2, ["--tp", 2]),
    "pp2": ("dense", 2, ["--pp", 2]),
    "dp2": ("dense", 2, []),
    "cp2": ("dense", 2, ["--cp", 2]),
    "ep2": ("experts", 2, ["--ep", 2]),
    "tp2_pp2": ("dense", 4, ["--tp", 2, "--pp", 2]),
}
RUN = """
[run]
dir = "{dir}"
steps = 4
device = "cpu"
threads = 1
[model]
config = "{model}"
[init]
weights = "{model}"
certificate = false
[data]
seq_len = 48
train = [{{ synthetic = 64 }}]
[batch]
global_size = 4
micro_size = 2
[optimizer]
lr = 1e-2
[precision]
compute = "fp32"
[checkpoint]
every = 2
keep = 0
[validation]
every = 2
tasks = [{{ name = "arc.mine", path = "{fixtures}/choices.jsonl" }},
         {{ name = "wiki", path = "{fixtures}/texts.jsonl" }}]
"""


def samples(name):
    return [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def root(run, tmp_path_factory):
    """The models, with a tokenizer of the words of the tasks."""
    folder = tmp_path_factory.mktemp("tasks")
    texts = [text for name in DELIMITERS for sample in samples(name)
             for request in requests_of(sample) for text in request]
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    run("longhaul", "data", "train-tokenizer", folder / "corpus.jsonl", "--vocab-size", 316, "--split",
        "llama3", "--out", folder / "tokenizer")
    for name, config in MODELS.items():
        model = model_of(config())
        with torch.no_grad():  # what the blocks add is small, so that the model repeats its last token
            for key, value in model.named_parameters():
                value.mul_(0.3 if "o_proj" in key or "down_proj" in key else 1.0)
        model.save_pretrained(folder / name)
        for path in (folder / "tokenizer").iterdir():
            shutil.copy(path, folder / name)
        (folder / name / "generation_config.json").unlink(missing_ok=True)
    return folder


@pytest.fixture(scope="module")
def expected(root):
    """By model and task: the peer's answers, scores and figures."""
    found = {}

    def of(model):
        if model not in found:
            peer, tasks = Peer(root / model, LENGTH), {}
            for name, delimiter in DELIMITERS.items():
                answers = [[(peer.rolling(*r), False) if len(r) == 1 else peer.answer(*r)
                            for r in requests_of(sample)] for sample in samples(name)]
                scores = [scores_of(s, a, delimiter) for s, a in zip(samples(name), answers)]
                tasks[name] = answers, scores, figures_of(samples(name), scores)
            found[model] = tasks
        return found[model]

    return of


def evaluate(run, model, *words, ranks=1, **options):
    return run("longhaul", "eval", model, "--seq-len", LENGTH, "--dtype", "fp32", "--json", *words,
               ranks=ranks, **options)


def close(found, wanted):
    return found == pytest.approx(wanted, rel=TOLERANCE, abs=TOLERANCE)


@pytest.mark.parametrize("case", split(LAYOUTS, ["one", "tp2", "pp2", "ep2"]))
def test_each_answer_is_that_of_transformers_by_lm_evals_rules(run, root, expected, tmp_path, case):
    model, ranks, words = LAYOUTS[case]
    files = [FIXTURES / f"{name}.jsonl" for name in DELIMITERS]
    said = json.loads(evaluate(run, root / model, "--micro-size", 2, "--tasks", *files, "--out",
                               tmp_path / "answers.jsonl", *words, ranks=ranks).stdout)
    assert said["layout"]["world"] == ranks and said["seq_len"] == LENGTH
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    greedy = set()
    for task in said["tasks"]:
        answers, scores, figures = expected(model)[task["name"]]
        found = [line for line in lines if line["task"] == task["name"]]
        assert len(found) == len(answers) == task["questions"]
        for line, answer, score in zip(found, answers, scores):
            where = task["name"], line["doc_id"]
            assert close(line["log_probs"], [log_prob for log_prob, _ in answer]), where
            assert close({name: line[name] for name in score}, score), where
            if task["name"] != "texts":
                assert line["is_greedy"] == [is_greedy for _, is_greedy in answer], where
                greedy.update(line["is_greedy"])
        assert close(task["metrics"], figures)
    assert [task["name"] for task in said["tasks"]] == list(DELIMITERS)
    assert greedy == {False, True}


def test_the_words_say_what_was_read_and_how(run, root):
    said = run("longhaul", "eval", root / "dense", "--seq-len", LENGTH, "--tasks",
               FIXTURES / "choices.jsonl", FIXTURES / "texts.jsonl").stdout
    assert "16 questions, 1 character of delimiter before each choice; " in said
    assert "cut at the left to 48 tokens; " in said
    assert "bits_per_byte" in said and " +- " in said


def records(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def trained(run, root):
    path = root / "run.toml"
    path.write_text(RUN.format(dir=root / "run", model=root / "dense", fixtures=FIXTURES))
    run("longhaul", "train", path, ranks=2)
    return root / "run"


def test_a_run_measures_its_tasks_beside_its_validations(run, root, expected, trained):
    told = [record for record in records(trained) if "task" in record]
    assert [(record["step"], record["task"]) for record in told] == [
        (step, name) for step in (0, 2, 4) for name in ("arc.mine", "wiki")]
    first = told[0]
    assert first["questions"] == 16 and first["seconds"] > 0
    assert close(first["metrics"], expected("dense")["choices"][2])
    assert told[1]["metrics"] != told[5]["metrics"]
    log = (trained / "log.txt").read_text()
    assert "task step 4 wiki word_perplexity " in log and "task arc.mine: 16 questions" in log
    by_hand = json.loads(evaluate(run, trained, "--tasks", FIXTURES / "texts.jsonl").stdout)
    assert close(by_hand["tasks"][0]["metrics"], told[5]["metrics"])


def test_a_step_that_is_trained_again_measures_no_tasks(run, trained, tmp_path):
    run("longhaul", "why", trained, "--step", 4, "--loss", "--ranks", 1, "--keep", "--out", tmp_path / "again")
    assert [record["step"] for record in records(tmp_path / "again/run")] == [3, 4]


# For each case the model and the settings of a run on two ranks.
RUNS = {
    "zero3": ("dense", "parallel.zero=3"),
    "pp2": ("dense", "parallel.pp=2"),
    "ep2": ("experts", "parallel.ep=2"),
}


@pytest.mark.parametrize("case", later(*RUNS))
def test_a_run_in_any_layout_measures_what_eval_measures_of_its_model(run, root, expected, tmp_path, case):
    model, layout = RUNS[case]
    (tmp_path / "run.toml").write_text(
        RUN.format(dir=tmp_path / "run", model=root / model, fixtures=FIXTURES))
    run("longhaul", "train", tmp_path / "run.toml", "--set", layout, ranks=2)
    told = [record for record in records(tmp_path / "run") if "task" in record]
    assert [record["step"] for record in told] == [0, 0, 2, 2, 4, 4]
    assert close(told[0]["metrics"], expected(model)["choices"][2])
    by_hand = json.loads(evaluate(run, tmp_path / "run", "--tasks", FIXTURES / "choices.jsonl",
                                  FIXTURES / "texts.jsonl").stdout)
    for task, record in zip(by_hand["tasks"], told[-2:], strict=True):
        assert close(task["metrics"], record["metrics"])
    assert told[1]["metrics"] != told[-1]["metrics"]


def test_the_report_and_tensorboard_have_the_tasks(run, trained, tmp_path):
    report = json.loads(run("longhaul", "report", trained, "--json").stdout)
    newest = [record for record in records(trained) if "task" in record][-2:]
    assert [(task["name"], task["step"], task["metrics"]) for task in report["tasks"]] == [
        (record["task"], 4, record["metrics"]) for record in newest]
    assert report["validation_sets"] == [] and report["validation"] is None
    shutil.copytree(trained, tmp_path / "again")
    for runs, words in (([trained], ["Task arc.mine", "acc_norm 0.", " +- 0."]),
                        ([trained, tmp_path / "again"], ["Task arc.mine, acc", "Task wiki, "])):
        run("longhaul", "report", *runs, "--out", tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text()
        for word in words:
            assert word in page, word
    run("longhaul", "report", trained, "--csv", tmp_path / "a.csv")
    last = list(csv.DictReader((tmp_path / "a.csv").open()))[-1]
    assert last["step"] == "4"
    for task in report["tasks"]:
        for name, value in task["metrics"].items():
            assert last[f"task/{task['name']}/{name}"] == ("" if value is None else repr(value)) or float(
                last[f"task/{task['name']}/{name}"]) == value
    events = b"".join(path.read_bytes() for path in (trained / "tensorboard").rglob("*tfevents*"))
    assert b"task/arc.mine/acc_stderr" in events and b"task/wiki/bits_per_byte" in events


def changed(name, change):
    lines = samples(name)
    change(lines)
    return "".join(json.dumps(line) + "\n" for line in lines)


# For each wrong file its text, and what is said of it.
WRONG = {
    "generate": (changed("cloze", lambda lines: lines[3]["arguments"]["gen_args_0"].update(
        arg_1={"until": ["."]})), ["line 4: the task has the model generate text"]),
    "no_choices": (changed("choices", lambda lines: lines[1].update(arguments={})),
                   ["line 2: arguments has no gen_args_0"]),
    "no_target": (changed("choices", lambda lines: lines[2].pop("target")),
                  ["line 3: the field 'target' is missing"]),
    "own_rules": (changed("pairs", lambda lines: lines[0].update(acc=0.5)),
                  ["line 1: acc of the answers in the file is"]),
    "chats": ('{"messages": []}\n', ["line 1: ", "--log_samples"]),
    "torn": (changed("choices", lambda lines: None)[:-40], ["line 16"]),
}


@pytest.mark.parametrize("name", split(WRONG, ["no_choices"]))
def test_a_wrong_file_is_refused_before_the_first_step(run, root, tmp_path, name):
    text, said = WRONG[name]
    (tmp_path / "wrong.jsonl").write_text(text)
    (tmp_path / "run.toml").write_text(
        RUN.format(dir="runs/mine", model=root / "dense", fixtures=FIXTURES))
    training_refused(run, tmp_path, ['validation.tasks=[{ name = "t", path = "wrong.jsonl" }]'], *said)


@pytest.mark.parametrize("words, said", [
    ([], "give --data STORE for a loss, or --tasks FILE"),
    *later((["--tasks", FIXTURES / "pairs.jsonl", "--max-sequences", 3], "--tasks excludes --max-sequences"),
           (["--tasks", "nowhere.jsonl"], "nowhere.jsonl"), (["--tasks", FIXTURES], "is a directory"))])
def test_eval_takes_data_or_tasks_that_are_there(run, root, words, said):
    refused(evaluate(run, root / "dense", *words, check=False), said)


def test_a_model_without_a_tokenizer_is_refused(run, root, tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(root / "dense" / name, tmp_path)
    done = evaluate(run, tmp_path, "--tasks", FIXTURES / "pairs.jsonl", check=False)
    refused(done, "no tokenizer.json and no tokenizer.model")


@pytest.mark.soak
def test_lm_eval_itself_gives_the_same_answers_and_figures(run, root, tmp_path):
    pytest.importorskip("lm_eval")
    from record_samples import lm_eval, samples_in
    out = lm_eval(tmp_path, "--model", "hf", "--model_args",
                  f"pretrained={root / 'dense'},dtype=float32,max_length={LENGTH}", "--device", "cpu",
                  "--batch_size", "4")
    (results,) = (json.loads(path.read_text())["results"] for path in out.rglob("results_*.json"))
    for name, path in samples_in(out).items():
        theirs = [json.loads(line) for line in path.read_text().splitlines()]
        said = json.loads(evaluate(run, root / "dense", "--tasks", path, "--out",
                                   tmp_path / f"{name}.answers").stdout)
        lines = (tmp_path / f"{name}.answers").read_text().splitlines()
        for line, sample in zip(map(json.loads, lines), theirs, strict=True):
            answers = sample["filtered_resps"]
            texts = name == "texts"
            assert close(line["log_probs"], [float(a if texts else a[0]) for a in answers])
            assert texts or line["is_greedy"] == [a[1] == "True" for a in answers]
        figures = said["tasks"][0]["metrics"]
        for metric, value in figures.items():
            if metric == "perplexity_stderr":  # lm-eval draws samples
                continue
            key = metric.replace("_stderr", "") + ("_stderr" if "_stderr" in metric else "") + ",none"
            assert close(results[name][key], value), (name, key)
