"""A case as the files that the programs read, and what they said as a verdict.

A case has `ranks`, `model` (short names, see MODEL_FIELDS) and `settings` ("section.key": value);
sometimes `override` (layers, by model.override) and `machines` (a letter for each rank: where it
pretends to be).
"""

import json
import re

MODEL_FIELDS = {
    "layers": "num_hidden_layers", "heads": "num_attention_heads", "keys": "num_key_value_heads",
    "head_dim": "head_dim", "hidden": "hidden_size", "inner": "intermediate_size",
    "vocab": "vocab_size", "positions": "max_position_embeddings", "tied": "tie_word_embeddings",
}
COMMON_MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
                "rms_norm_eps": 1e-5, "rope_theta": 500000.0}
# Settings that are the same in all cases: a run without saves that does as little as possible.
COMMON = {
    "run": ['dir = "run"', "steps = 1", 'device = "cpu"', "threads = 1"],
    "model": ['config = "model"'],
    "data": ["train = [{ synthetic = 64 }]"],
    "batch": [], "parallel": [], "memory": [], "precision": [],
    "optimizer": ["lr = 1e-3"],
    "checkpoint": ["every = 0", "read_back = false"],
}
ERROR = re.compile(r"^longhaul: error: (?:rank (\d+) of \d+: )?(.*)$", re.M)


def toml_of(case):
    """The lines of run.toml, and the place of each key, each value and each section."""
    lines, places = [], {}

    def add(line, **named):
        lines.append(line)
        places.update({name: f"run.toml:{len(lines)}:{column}" for name, column in named.items()})

    for section, common in COMMON.items():
        add(f"[{section}]", **{f"[{section}]": 2})
        for line in common:
            add(line)
        if section == "model" and "override" in case:
            add(f"override = {{ num_hidden_layers = {case['override']} }}")
        for name, value in case["settings"].items():
            if not name.startswith(section + "."):
                continue
            key = name.split(".")[1]
            add(f"{key} = {json.dumps(value)}", **{f"key {name}": 1, name: len(key) + 4})
    return lines, places


def write_case(case, path):
    """Writes a case as files to a directory of its own, in which the program is started."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "model").mkdir(exist_ok=True)
    model = {MODEL_FIELDS[name]: value for name, value in case["model"].items()}
    (path / "model" / "config.json").write_text(json.dumps({**COMMON_MODEL, **model}))
    (path / "run.toml").write_text("\n".join(toml_of(case)[0]) + "\n")


def verdict_of(result):
    """[0], or [exit code, the words of the error] of the lowest rank that printed any."""
    if result.returncode == 0:
        return [0]
    said = [(int(rank or 0), words) for rank, words in ERROR.findall(result.stderr)]
    return [result.returncode, min(said)[1] if said else result.stderr.strip()[-300:]]


def read_cases(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line[0] == "{"]
