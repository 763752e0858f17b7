"""GGUF files, read by the Python package gguf: keys as llama.cpp's converter writes them
(converter_keys.json, recorded from it), tensors as computed here from the model's directory."""

import filecmp
import json
import pathlib
import shutil

import gguf
import numpy
import pytest
import sentencepiece
import torch
import transformers
from cases import (CASES, bytes_tokenizer, expected_tensors, expected_type, make_directory,
                   pieces_tokenizer, set_half, tensors_of)
from gguf.quants import quantize
from programs import later, split
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = json.loads((HERE / "converter_keys.json").read_text())
# What the converter makes of a directory's name and its model card, and of versions of itself.
OF_NAMES = ("general.name", "general.basename", "general.finetune", "general.version",
            "general.organization")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The directory of a case's model, made when it is first asked for."""
    root, made = tmp_path_factory.mktemp("models"), {}

    def of(case):
        if case not in made:
            make_directory(case, root / case)
            made[case] = root / case
        return made[case]
    return of


def values_of(reader):
    return {name: field.contents() for name, field in reader.fields.items()
            if not name.startswith("GGUF.")}


def export(run, source, out, *words, dtype="fp32"):
    result = run("longhaul", "export", source, "--format", "gguf", "--dtype", dtype, "--out", out,
                 *words)
    return gguf.GGUFReader(out), result.stdout


def same(ours, theirs):
    if isinstance(theirs, float):
        return ours == pytest.approx(theirs, rel=1e-6)
    return ours == theirs


# --- keys and tensors

@pytest.mark.parametrize("case", CASES)
def test_each_architecture_has_the_keys_of_the_converter_and_the_models_tensors(
        run, directory, tmp_path, case):
    source = directory(case)
    reader, said = export(run, source, tmp_path / "model.gguf")
    values, recorded = values_of(reader), RECORDED[case]
    assert {key: values.get(key) for key, value in recorded.items()
            if not same(values.get(key), value)} == {}
    more = set(values) - set(recorded) - set(OF_NAMES)
    allowed = {"tokenizer.ggml.model", f"{values['general.architecture']}.vocab_size"}
    if case == "gemma3":
        allowed |= {"gemma3.attention.sliding_window_pattern"}
    if case == "pythia":
        allowed |= {"general.file_type"}
    assert more <= allowed
    assert values["tokenizer.ggml.model"] == "none"
    assert "no tokenizer" in said and "has no tokenizer, and so the file has none" in said

    config = json.loads((source / "config.json").read_text())
    expected = expected_tensors(config, tensors_of(source))
    found = {tensor.name: tensor for tensor in reader.tensors}
    if case == "llama_scaled":
        divisors = found.pop("rope_freqs.weight").data
        assert divisors.tolist() == pytest.approx([1, 2.4422596, 8, 8, 8, 8, 8, 8], rel=1e-6)
    assert set(found) == set(expected)
    for name, tensor in found.items():
        assert tensor.tensor_type.name == "F32", name
        assert list(tensor.shape) == list(reversed(expected[name].shape)), name
        assert (tensor.data == expected[name]).all(), name


@pytest.mark.parametrize("case", split(CASES, ["llama_scaled", "qwen3_moe", "gpt2"]))
@pytest.mark.parametrize("dtype", ["q8_0", *later("fp16", "bf16")])
def test_narrow_types_have_the_bytes_of_the_packages_own_quantiser(
        run, directory, tmp_path, case, dtype):
    source = directory(case)
    name = {"q8_0": "Q8_0", "fp16": "F16", "bf16": "BF16"}[dtype]
    reader, said = export(run, source, tmp_path / "model.gguf", dtype=dtype)
    config = json.loads((source / "config.json").read_text())
    expected = expected_tensors(config, tensors_of(source))
    uneven = []
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        wanted = expected_type(tensor.name, expected[tensor.name].shape, name)
        assert tensor.tensor_type.name == wanted, tensor.name
        bytes_ = quantize(expected[tensor.name], gguf.GGMLQuantizationType[wanted])
        assert tensor.data.tobytes() == bytes_.tobytes(), tensor.name
        uneven += [tensor.name] * (wanted != name and wanted == "F16")
    assert values_of(reader)["general.file_type"] == gguf.LlamaFileType[f"MOSTLY_{name}"]
    # Rows of 150, of 48 and of 144 elements.
    uneven_cases = ("llama_scaled", "mistral", "qwen3", "qwen3_moe", "gemma3")
    assert bool(uneven) == (case in uneven_cases and dtype == "q8_0")
    told = f"{len(uneven)} tensors became F16, since rows are no whole blocks of Q8_0: "
    assert (told + "".join(uneven[:1]) in said) == bool(uneven)


# --- back again

@pytest.mark.parametrize("case", CASES)
def test_export_and_import_give_the_same_bits(run, directory, tmp_path, case):
    source = directory(case)
    export(run, source, tmp_path / "model.gguf")
    words = ["--config", source] if case == "llama_scaled" else []
    run("longhaul", "import", tmp_path / "model.gguf", "--out", tmp_path / "hf", *words)
    before, after = tensors_of(source), tensors_of(tmp_path / "hf")
    # What a family needs a second time is a tensor of its own in the directory.
    assert set(before) <= set(after)
    for name, value in before.items():
        if case == "gemma3" and name.endswith("norm.weight"):
            assert torch.allclose(after[name], value, rtol=0, atol=2e-7), name
        else:
            assert torch.equal(after[name], value), name
    again, _ = export(run, tmp_path / "hf", tmp_path / "again.gguf")
    assert {key: value for key, value in values_of(again).items() if key != "general.name"} == {
        key: value for key, value in values_of(gguf.GGUFReader(tmp_path / "model.gguf")).items()
        if key != "general.name"}


@pytest.mark.parametrize("dtype,kind", [("bf16", torch.bfloat16), *later(("fp16", torch.float16))])
def test_a_model_of_half_precision_comes_back_as_it_was(run, directory, tmp_path, dtype, kind):
    source = tmp_path / "half"
    shutil.copytree(directory("mixtral"), source)
    set_half(source, kind)
    run("longhaul", "export", source, "--format", "gguf", "--out", tmp_path / "m.gguf")
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    assert {tensor.tensor_type.name for tensor in reader.tensors} == {
        "F32", {"bf16": "BF16", "fp16": "F16"}[dtype]}
    run("longhaul", "import", tmp_path / "m.gguf", "--dtype", dtype, "--out", tmp_path / "hf")
    before, after = tensors_of(source), tensors_of(tmp_path / "hf")
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert before.keys() == after.keys()


def test_q8_0_comes_back_as_its_values(run, directory, tmp_path):
    reader, _ = export(run, directory("llama"), tmp_path / "m.gguf", dtype="q8_0")
    run("longhaul", "import", tmp_path / "m.gguf", "--out", tmp_path / "hf")
    stored = next(t for t in reader.tensors if t.name == "blk.1.ffn_up.weight")
    value = gguf.quants.dequantize(stored.data, stored.tensor_type)
    after = tensors_of(tmp_path / "hf")["model.layers.1.mlp.up_proj.weight"].numpy()
    assert (after == value).all()


@pytest.mark.parametrize("case", split(
    [case for case in CASES if case != "llama_scaled"], ["gemma3", "olmo3"]))
def test_the_config_made_of_a_file_computes_the_same_logits(run, directory, tmp_path, case):
    source = directory(case)
    export(run, source, tmp_path / "model.gguf")
    run("longhaul", "import", tmp_path / "model.gguf", "--out", tmp_path / "hf")
    ids = torch.arange(3, 90).view(1, -1)
    logits = []
    for path in (source, tmp_path / "hf"):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager")
        with torch.no_grad():
            logits.append(model(ids).logits)
    assert torch.allclose(*logits, rtol=0, atol=1e-5)


# --- tokenizers

@pytest.mark.parametrize("split_name,ignore_merges,pre", [
    ("gpt2", False, "gpt-2"), ("llama3", False, "dbrx"), ("llama3", True, "llama-bpe"),
    ("qwen2", False, "qwen2"), ("o200k", False, "gpt-4o"), ("digits", False, "smollm")])
def test_a_tokenizer_goes_along_with_the_pre_tokenizer_of_its_pattern(
        run, directory, tmp_path, split_name, ignore_merges, pre):
    source = tmp_path / "model"
    shutil.copytree(directory("llama"), source)
    begins = split_name == "llama3"
    tokenizer = bytes_tokenizer(source, split_name, ignore_merges, begins)
    reader, said = export(run, source, tmp_path / "m.gguf")
    values = values_of(reader)
    assert f"tokenizer gpt2 ({pre})" in said
    assert values["tokenizer.ggml.model"] == "gpt2"
    assert values["tokenizer.ggml.pre"] == pre
    vocabulary = {id_: token for token, id_ in tokenizer.get_vocab().items()}
    tokens = [vocabulary.get(i, f"[PAD{i}]") for i in range(320)]
    assert values["tokenizer.ggml.tokens"] == tokens
    kinds = values["tokenizer.ggml.token_type"]
    think = tokenizer.token_to_id("<think>")
    assert kinds[:3] == [3, 3, 1] and kinds[think] == 4
    assert set(kinds[think + 1:]) <= {5} and set(kinds[2:think]) == {1}
    model = json.loads((source / "tokenizer.json").read_text())["model"]
    assert values["tokenizer.ggml.merges"] == [" ".join(pair) for pair in model["merges"]]
    assert values["tokenizer.ggml.bos_token_id"] == 1
    assert values["tokenizer.ggml.eos_token_id"] == values["tokenizer.ggml.padding_token_id"] == 0
    assert values["tokenizer.ggml.add_bos_token"] is begins
    assert values["tokenizer.ggml.add_eos_token"] is False
    assert values["tokenizer.chat_template"] == "{{ messages[0]['content'] }}"


def test_a_sentencepiece_model_goes_along_with_its_scores(run, directory, tmp_path):
    source = tmp_path / "model"
    shutil.copytree(directory("llama"), source)
    count = pieces_tokenizer(source) - 1
    reader, _ = export(run, source, tmp_path / "m.gguf")
    values = values_of(reader)
    pieces = sentencepiece.SentencePieceProcessor(str(source / "tokenizer.model"))
    assert values["tokenizer.ggml.model"] == "llama"
    assert values["tokenizer.ggml.pre"] == "default"
    tokens, kinds = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    scores = values["tokenizer.ggml.scores"]
    assert tokens[:count] == [pieces.id_to_piece(i) for i in range(count)]
    assert scores[3:count] == [pieces.get_score(i) for i in range(3, count)]
    assert kinds[:3] == [3, 3, 3] and scores[:3] == [-1000.0] * 3
    assert kinds[3:259] == [6] * 256 and set(kinds[259:count]) == {1}
    assert (tokens[count], kinds[count], scores[count]) == ("<think>", 4, -1000.0)
    assert tokens[count + 1] == f"[PAD{count + 1}]" and kinds[count + 1] == 5
    assert scores[count + 1] == -10000.0
    assert values["tokenizer.ggml.add_bos_token"] is True


def test_the_chat_template_is_that_of_the_file_as_in_transformers(run, directory, tmp_path):
    source = tmp_path / "model"
    shutil.copytree(directory("llama"), source)
    bytes_tokenizer(source, "gpt2")
    (source / "chat_template.jinja").write_text("{{ 'of the file' }}")
    reader, said = export(run, f"{source}/", tmp_path / "m.gguf")
    values = values_of(reader)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(source).chat_template
    assert values["tokenizer.chat_template"] == theirs == "{{ 'of the file' }}"
    assert "chat_template.jinja and tokenizer_config.json have different templates" in said
    assert values["general.name"] == "model"


def test_a_split_that_removes_text_is_refused(run, directory, tmp_path):
    source = tmp_path / "model"
    shutil.copytree(directory("llama"), source)
    bytes_tokenizer(source, "llama3")
    file = source / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    split_step = tokenizer["pre_tokenizer"]["pretokenizers"][0]
    words = ("export", source, "--format", "gguf", "--out", tmp_path / "m.gguf")
    for behavior, invert, said in (("Removed", False, "Removed"), ("Contiguous", True, "Contiguous, inverted")):
        split_step.update(behavior=behavior, invert=invert)
        file.write_text(json.dumps(tokenizer))
        assert f"Split has the behavior {said}. llama.cpp" in refused(run, *words)
    split_step.update(behavior="Removed", invert=True)  # the pattern matches all of a text
    file.write_text(json.dumps(tokenizer))
    assert "tokenizer gpt2 (dbrx)" in run("longhaul", *words).stdout


def test_what_llama_cpp_has_no_tokenizer_for_is_refused_or_left_out(run, directory, tmp_path):
    source = tmp_path / "model"
    shutil.copytree(directory("llama"), source)
    bytes_tokenizer(source, r"\p{L}+|\P{L}+")
    words = ("longhaul", "export", source, "--format", "gguf", "--out", tmp_path / "m.gguf")
    result = run(*words, check=False)
    assert result.returncode == 78 and not (tmp_path / "m.gguf").exists()
    assert r"the split pattern is \p{L}+|\P{L}+, then bytes" in result.stderr
    assert "--no-tokenizer" in result.stderr
    run(*words, "--no-tokenizer")
    assert values_of(gguf.GGUFReader(tmp_path / "m.gguf"))["tokenizer.ggml.model"] == "none"


# --- what is refused

def refused(run, *words):
    result = run("longhaul", *words, check=False)
    assert result.returncode == 78, result.stderr
    return result.stderr


def with_config(source, path, **changes):
    shutil.copytree(source, path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **changes}))
    return path


@pytest.mark.parametrize("case,changes,said", [
    ("qwen3_moe", {"norm_topk_prob": False}, "norm_topk_prob is false"),
    ("mistral", {"sliding_window": 40}, "layer 0 has a window of 40 positions, and the model 512"),
    ("smollm3", {"no_rope_layers": [1, 0, 1, 1]}, "layer 1 has no rotation"),
    ("gemma3", {"query_pre_attn_scalar": 30}, "scores of attention have the factor"),
])
def test_what_gguf_cannot_say_is_refused_by_name(run, directory, tmp_path, case, changes, said):
    source = with_config(directory(case), tmp_path / "model", **changes)
    assert said in refused(run, "export", source, "--format", "gguf", "--out", tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_a_weight_beyond_a_scale_of_q8_0_is_refused_by_name(run, directory, tmp_path):
    shutil.copytree(directory("llama"), tmp_path / "model")
    tensors = tensors_of(tmp_path / "model")
    tensors["model.layers.0.mlp.up_proj.weight"][2, 3] = -1e7
    save_file(tensors, tmp_path / "model/model.safetensors", {"format": "pt"})
    words = ("export", tmp_path / "model", "--format", "gguf", "--out", tmp_path / "m.gguf")
    said = refused(run, *words, "--dtype", "q8_0")
    assert "model.layers.0.mlp.up_proj.weight: a block of Q8_0 has an element of magnitude 1e+07" in said
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_file_that_is_there_stays_and_options_of_the_other_format_are_refused(
        run, directory, tmp_path):
    source = directory("llama")
    (tmp_path / "m.gguf").write_text("mine")
    words = ("export", source, "--format", "gguf", "--out", tmp_path / "m.gguf")
    assert "exists already" in refused(run, *words)
    assert (tmp_path / "m.gguf").read_text() == "mine"
    assert "--shard-size is for --format hf" in refused(run, *words, "--shard-size", "1MB")
    assert "a GGUF file is written to a path" in refused(run, *words[:-1], "s3://bucket/m.gguf")
    assert "add --format gguf" in refused(run, "export", source, "--out", tmp_path / "x.gguf")
    assert "is for --format gguf" in refused(run, "export", source, "--dtype", "q8_0", "--out",
                                             tmp_path / "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf"]


def test_files_that_say_something_else_are_refused_and_leave_nothing(run, directory, tmp_path):
    export(run, directory("llama"), tmp_path / "m.gguf")
    good = (tmp_path / "m.gguf").read_bytes()

    def refused_with(changed, *more):
        (tmp_path / "m.gguf").write_bytes(changed)
        said = refused(run, "import", tmp_path / "m.gguf", "--out", tmp_path / "hf", *more)
        assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]
        return said

    assert "the key llama.rope.dimension_start = 16 is not read" in refused_with(
        good.replace(b"llama.rope.dimension_count", b"llama.rope.dimension_start"))
    assert "the tensors are not those of the file's keys: blk.0.ffn_gate.weight is missing" in (
        refused_with(good.replace(b"blk.0.ffn_gate.weight", b"blk.0.ffn_gone.weight")))
    assert 'the architecture "lamma" is not read' in refused_with(good.replace(b"llama", b"lamma"))
    assert f"byte {len(good) - 1}: the file ends" in refused_with(good[:-1])
    assert "there is no tokenizer in this directory" in refused_with(
        good, "--tokenizer", directory("llama"))
    assert "--kv-order is not for a GGUF file" in refused_with(good, "--kv-order", "tiled")


def test_an_imported_directory_has_the_tokenizer_that_is_named(run, directory, tmp_path):
    bytes_tokenizer(tmp_path / "words", "gpt2")
    export(run, directory("llama"), tmp_path / "m.gguf")
    run("longhaul", "import", tmp_path / "m.gguf", "--tokenizer", tmp_path / "words", "--out",
        tmp_path / "hf")
    names = ["tokenizer.json", "tokenizer_config.json"]
    compared = filecmp.cmpfiles(tmp_path / "words", tmp_path / "hf", names, shallow=False)
    assert compared == (names, [], [])
