"""Writes tests/fixtures/tasks/: the questions of five small tasks as lm-eval writes them.

    python record_samples.py DIR    # with lm-eval 0.4.13; DIR: tests/fixtures/tasks

The tasks are local, so nothing is fetched. Their answers are those of lm-eval's model `dummy`."""

import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

WORDS = ("the a cat dog river stone bread night walks sings under over go blue old Äpfel größer naïve "
         "café water light hand seven never").split()

COMMON = {"test_split": "test", "num_fewshot": 0}
MEANS = ["acc", "acc_norm", "acc_bytes"]
# For each task its settings; the docs are made below.
TASKS = {
    "choices": {"output_type": "multiple_choice", "doc_to_text": "Q: {{question}}\nA:",
                "doc_to_choice": "choices", "doc_to_target": "answer", "metrics": MEANS},
    "pairs": {"output_type": "multiple_choice", "doc_to_text": "", "target_delimiter": "",
              "doc_to_choice": "{{[good, bad]}}", "doc_to_target": 0, "metrics": MEANS},
    "schema": {"output_type": "multiple_choice", "doc_to_text": "label",
               "doc_to_choice": "{{[first, second]}}", "doc_to_target": "{{rest}}",
               "metrics": ["acc"]},
    "cloze": {"output_type": "loglikelihood", "doc_to_text": "{{before}}",
              "doc_to_target": "{{last}}", "metrics": ["perplexity", "acc"]},
    "texts": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
              "metrics": ["word_perplexity", "byte_perplexity", "bits_per_byte"]},
}


def docs_of(name):
    draw = random.Random(name)

    def some(least, most):
        return " ".join(draw.choices(WORDS, k=draw.randint(least, most)))
    if name == "choices":
        return [{"question": some(2, 25), "choices": [some(1, 6) for _ in range(draw.randint(2, 5))],
                 "answer": draw.randrange(2)} for _ in range(16)]
    if name == "pairs":
        return [{"good": some(2, 8), "bad": some(2, 8)} for _ in range(8)]
    if name == "schema":
        return [{"first": some(3, 9), "second": some(3, 9), "rest": some(2, 4),
                 "label": draw.randrange(2)} for _ in range(8)]
    if name == "cloze":
        blanks = ["", " ", "  ", "\u00a0", "\n"]
        docs = [{"before": some(1, 20) + draw.choice(blanks), "last": " " + some(1, 1)}
                for _ in range(8)]
        # A small model repeats its last token, which is greedy then.
        return docs + [{"before": " ".join([word] * 5), "last": f" {word}"} for word in WORDS[:6]]
    return [{"text": some(least, least + 5)} for least in (1, 8, 60, 150)]


def write_task(folder, name):
    settings = {**COMMON, **TASKS[name]}
    metrics = settings.pop("metrics")
    data = folder / f"{name}.json"
    data.write_text("".join(json.dumps(doc) + "\n" for doc in docs_of(name)))
    settings.update(task=name, dataset_path="json", dataset_kwargs={"data_files": {"test": str(data)}},
                    metric_list=[{"metric": metric} for metric in metrics])
    (folder / f"{name}.yaml").write_text(json.dumps(settings, indent=1))  # JSON is YAML


def lm_eval(folder, *words):
    """Runs lm-eval on the tasks; returns where its files are."""
    for name in TASKS:
        write_task(folder, name)
    subprocess.run([sys.executable, "-m", "lm_eval", "--tasks", ",".join(TASKS), "--include_path",
                    folder, "--log_samples", "--output_path", folder / "out", *words], check=True)
    return folder / "out"


def samples_in(out):
    """The file of samples of each task."""
    found = {}
    for path in out.rglob("samples_*.jsonl"):
        found[re.fullmatch(r"samples_(\w+?)_20.*", path.stem)[1]] = path
    return found


def main(to):
    with tempfile.TemporaryDirectory() as folder:
        for name, path in samples_in(lm_eval(pathlib.Path(folder), "--model", "dummy")).items():
            (pathlib.Path(to) / f"{name}.jsonl").write_text(path.read_text())


if __name__ == "__main__":
    main(*sys.argv[1:])
