"""Files beside a model's weights go wherever the weights go, and transformers reads them there.
Files that are left behind are named."""

import shutil

import pytest
from refusals import refused_without_a_trace
from transformers import AutoTokenizer

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CHAT = [{"role": "user", "content": "Hello"}]
SIDE = {"chat_template.jinja": TEMPLATE, "chat_template.json": '{"chat_template": "x"}',
        "additional_chat_templates/tool_use.jinja": "tools", "preprocessor_config.json": "{}",
        "processor_config.json": "{}", "LICENSE": "free", "NOTICE": "by us", "USE_POLICY.md": "be kind",
        "README.md": "a model", "tekken.json": "{}", "merges.txt": "a b", "added_tokens.json": "{}"}
OF_TOKENIZER = [n for n in SIDE if "chat" in n or n in ("tekken.json", "merges.txt", "added_tokens.json")]
LEFT = ["modeling_own.py", "optimizer.pt"]


@pytest.fixture
def model(root):
    for name, text in {**SIDE, **dict.fromkeys(LEFT, "x")}.items():
        (root / "models/small" / name).parent.mkdir(exist_ok=True)
        (root / "models/small" / name).write_text(text)
    return root / "models/small"


def carries(directory, names=SIDE, code=LEFT):
    for name in names:
        assert (directory / name).read_text() == SIDE[name], name
    for name in code:
        assert not (directory / name).exists(), name


def answers(directory):
    """Texts that transformers makes with the tokenizer and its template."""
    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert tokenizer.apply_chat_template(CHAT, tokenize=False) == "user: Hello\n"
    assert tokenizer.get_chat_template("tool_use") == "tools"
    return tokenizer("The sea, the sea").input_ids


def train(run, root, *sets):
    sets = [word for key in ("run.steps=1", *sets) for word in ("--set", key)]
    run("longhaul", "train", "run.toml", *sets, cwd=root)
    run("longhaul", "export", "runs/mine", "--out", "out", cwd=root)
    run("longhaul", "inspect", "out", cwd=root)
    return (root / "runs/mine/log.txt").read_text()


def test_export_of_a_directory(run, root, model):
    said = run("longhaul", "export", model, "--out", root / "out").stdout
    carries(root / "out")
    assert answers(root / "out") == answers(model)
    assert "ignored modeling_own.py, optimizer.pt: no part of a model" in said


def test_a_run_that_begins_with_weights(run, root, model):
    log = train(run, root)
    carries(root / "out")
    assert answers(root / "out") == answers(model)
    assert "modeling_own.py, optimizer.pt" in log


def test_a_run_that_begins_at_random(run, root, model):
    log = train(run, root, "init.weights=")
    carries(root / "out")
    assert "modeling_own.py, optimizer.pt" in log


def test_weights_that_lie_elsewhere_than_the_config(run, root, model):
    bare = root / "models/bare"
    bare.mkdir()
    for file in [*model.glob("*.safetensors*"), model / "config.json"]:
        shutil.copy(file, bare)
    (bare / "LICENSE").write_text("the weights' own")
    log = train(run, root, "init.weights=models/bare")
    carries(root / "out", [n for n in SIDE if n != "LICENSE"])
    assert (root / "out/LICENSE").read_text() == "the weights' own"
    assert answers(root / "out") == answers(model)
    assert "stay behind: LICENSE" in log
    # Files of two tokenizers are not mixed.
    shutil.copy(model / "tokenizer.json", bare)
    shutil.rmtree(root / "out")
    shutil.rmtree(root / "runs")
    log = train(run, root, "init.weights=models/bare")
    carries(root / "out", [n for n in SIDE if n not in ("LICENSE", *OF_TOKENIZER)],
            [*LEFT, *OF_TOKENIZER])
    assert "chat_template.jinja" in log


def test_a_store_keeps_its_tokenizer_whole(run, root, model):
    run("longhaul", "data", "build", root / "corpus" / "00*.txt", "--tokenizer", model, "--out",
        root / "data/whole")
    carries(root / "data/whole/tokenizer", OF_TOKENIZER)
    run("longhaul", "verify", root / "data/whole")
    halves = ["--out-train", root / "data/one", "--out-validation", root / "data/other"]
    run("longhaul", "data", "split", root / "data/whole", "--documents", "1", *halves)
    carries(root / "data/other/tokenizer", OF_TOKENIZER)
    # The run's own directory of the model has a config and no tokenizer.
    (root / "models/config").mkdir()
    shutil.copy(model / "config.json", root / "models/config")
    train(run, root, "init.weights=", "model.config=models/config/config.json",
          'data.train=[{ path = "data/whole" }]', "batch.global_size=8")
    carries(root / "out", OF_TOKENIZER)
    assert answers(root / "out") == answers(model)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"])
def test_a_store_is_not_made_with_half_a_tokenizer(run, root, name):
    path = root / "models/small" / name
    path.unlink(missing_ok=True)
    path.symlink_to("../blobs/1f")
    refused_without_a_trace(run, root, ["data", "build", "corpus/000.txt", "--tokenizer", "models/small",
                                        "--out", "data/more"],
                            f"{name}: a link to ../blobs/1f, where nothing is")
