"""llama.cpp itself on our files: its converter writes the same keys and tensors, and its library
gives the same ids, greedy tokens and log-probabilities as transformers. Slow, since llama.cpp is
built for it: `make soak`."""

import json
import random
import re

import gguf
import numpy
import pytest
import sentencepiece
import tokenizers
import torch
import transformers
from cases import CASES, WORDS, bytes_tokenizer, make_directory, pieces_tokenizer
from llama_cpp import HERE, Probe, convert
from test_gguf import OF_NAMES, same, values_of
from tokenizer_styles import odd_texts

# The tokenizers of the cases: one of each kind, and one split pattern after the other.
SPLITS = {"llama": ("llama3", False, True, "dbrx"), "llama_scaled": ("llama3", True, True, "llama-bpe"),
          "qwen2": ("qwen2", False, False, "qwen2"), "qwen3": ("qwen2", False, False, "qwen2"),
          "olmo2": ("llama3", False, False, "dbrx"), "gpt2": ("gpt2", False, False, "gpt-2"),
          "smollm3": ("o200k", False, False, "gpt-4o"), "granite": ("digits", False, False, "smollm")}
PIECES = ("mistral", "llama_tied", "gemma3")
# What the converter does not write: whether tokens stand around a text is said in any case, and
# the window's layers where they are not the usual ones.
MORE = {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
        "tokenizer.ggml.add_sep_token", "tokenizer.ggml.unknown_token_id",
        "gemma3.attention.sliding_window_pattern", "general.file_type"}


@pytest.fixture(scope="module", params=CASES)
def model(request, run, tmp_path_factory):
    """A model with a tokenizer: its case, its directory and its file."""
    case, root = request.param, tmp_path_factory.mktemp("model")
    make_directory(case, root / "hf")
    pre = "gpt-2"
    if case in PIECES:
        pieces_tokenizer(root / "hf", prefix=case != "gemma3")
    else:
        split, ignore_merges, begins, pre = SPLITS.get(case, ("gpt2", False, False, "gpt-2"))
        bytes_tokenizer(root / "hf", split, ignore_merges, begins)
    run("longhaul", "export", root / "hf", "--format", "gguf", "--dtype", "fp32", "--out",
        root / "ours.gguf")
    return case, root, pre


def test_the_converter_writes_the_same(run, model):
    case, root, pre = model
    convert(root / "hf", root / "theirs.gguf", pre)
    ours, theirs = (gguf.GGUFReader(root / name) for name in ("ours.gguf", "theirs.gguf"))
    ours_values, theirs_values = values_of(ours), values_of(theirs)
    differing = {key: (value, ours_values.get(key)) for key, value in theirs_values.items()
                 if key not in OF_NAMES and not same(ours_values.get(key), value)}
    assert differing == {}
    assert set(ours_values) - set(theirs_values) - set(OF_NAMES) <= MORE
    found = {tensor.name: tensor for tensor in ours.tensors}
    expected = {tensor.name: tensor for tensor in theirs.tensors}
    if case in ("olmo2", "olmo3", "pythia"):
        expected.setdefault("output.weight", expected["token_embd.weight"])
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].tensor_type == tensor.tensor_type
        close = name == "rope_freqs.weight"
        assert (numpy.allclose(found[name].data, tensor.data, rtol=1e-6) if close else
                (found[name].data == tensor.data).all()), name
    if (HERE / "record").exists():  # touch tests/gguf/record to record the keys
        record(case, theirs_values)


def record(case, values):
    file = HERE / "converter_keys.json"
    recorded = json.loads(file.read_text()) if file.exists() else {}
    recorded[case] = {key: value for key, value in values.items()
                      if key not in OF_NAMES and not key.startswith("tokenizer.")}
    file.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


def texts():
    """A thousand texts without the names of special tokens, which are text to sentencepiece."""
    rng = random.Random(5)
    found = [rng.choice(WORDS) + " " + text for text in odd_texts(1200, 5)]
    return [text for text in found if not re.search(r"\0|</?(s|unk|think)>|<0x", text)][:1000]


def test_llama_cpp_gives_the_same_ids(model):
    case, root, _ = model
    if case in PIECES:
        pieces = sentencepiece.SentencePieceProcessor(str(root / "hf" / "tokenizer.model"))

        def ids_of(text):
            return [pieces.bos_id(), *pieces.encode(text)]
    else:
        tokenizer = tokenizers.Tokenizer.from_file(str(root / "hf" / "tokenizer.json"))

        def ids_of(text):
            return tokenizer.encode(text).ids
    probe = Probe(root / "ours.gguf")
    wrong = [(text, ids, found) for text in texts()
             if (ids := ids_of(text)) != (found := probe.ids(text))]
    probe.close()
    assert not wrong, f"{len(wrong)}: {wrong[0]}"


def test_llama_cpp_computes_the_same(model):
    case, root, _ = model
    reference = transformers.AutoModelForCausalLM.from_pretrained(
        root / "hf", dtype=torch.float32, attn_implementation="eager")
    torch.manual_seed(1)
    ids = torch.randint(3, 300, (1, 200))
    with torch.no_grad():
        logits = reference(ids).logits[0]
        start, count = ids[:, :20], 24
        greedy = reference.generate(start, max_new_tokens=count, do_sample=False, eos_token_id=None,
                                    pad_token_id=0)[0, 20:].tolist()
    logs = torch.log_softmax(logits.double(), -1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
    probe = Probe(root / "ours.gguf")
    best, scores = probe.scores(ids[0].tolist())
    assert numpy.abs(numpy.array(scores) - logs.numpy()).max() < 1e-3
    assert best == logits[:-1].argmax(-1).tolist()
    assert probe.greedy(count, start[0].tolist()) == greedy
    probe.close()
