"""What AutoTokenizer makes of a directory, and what longhaul warns that it makes of it.

What stands beside a tokenizer.json can give AutoTokenizer other ids than the file says. Each such
difference is a warning, and where there is none there is no warning.
"""
import json
import os
import pathlib
import subprocess

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")
from tokenizers import Regex, Tokenizer, decoders, models, normalizers  # noqa: E402
from tokenizers import pre_tokenizers, processors, trainers  # noqa: E402
from transformers.models.auto import tokenization_auto  # noqa: E402
from transformers.tokenization_utils_tokenizers import TokenizersBackend  # noqa: E402

import sentencepiece  # noqa: E402
from programs import later  # noqa: E402
from test_tokenizer import BIN, REGEX, our_results  # noqa: E402
from tokenizer_styles import sentencepiece_model  # noqa: E402

TEXT = ["the quick brown fox jumps over 12345 lazy dogs. Hello, World! it's\n fine  really",
        "caf\u00e9 na\u00efve \u00c0\u00c9 x<y \u4e2d\u6587"] * 4
SAMPLES = ["Hello it's 12345 cafe\u0301 X", " two  spaces\n\nand <s>a</s> <pad> <extra>b", ""]
FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
FLAGS = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
LLAMA = {"model_type": "llama", "vocab_size": 500, "hidden_size": 8, "num_attention_heads": 2,
         "num_hidden_layers": 1, "intermediate_size": 8}


def split_of(name):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(REGEX[name]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level(pre_tokenizer, normalizer=None, special=("<|endoftext|>", "<s>", "</s>", "<unk>"), **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def spaces_as_marks(scheme=None):
    """Llama 2's tokenizer: as its file has it, or with Metaspace, as its class in transformers
    builds it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if scheme:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"),
                                                     normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1)])
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=500, show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    return tokenizer


def bert(lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(TEXT, trainers.WordPieceTrainer(
        vocab_size=300, show_progress=False,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def gpt_neox():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC(),
                      ["<|endoftext|>", "<|padding|>"])


STYLES = {
    "gpt2": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), special=["<|endoftext|>"]),
    "gpt2_space": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "llama3": lambda: byte_level(split_of("llama3"), ignore_merges=True),
    "qwen2": lambda: byte_level(split_of("qwen2"), normalizers.NFC(), ["<|endoftext|>"]),
    "gpt_neox": gpt_neox,
    "llama2": spaces_as_marks,
    "metaspace": lambda: spaces_as_marks("first"),
    "bert": lambda: bert(True),
    "bert_cased": lambda: bert(False),
}


def write(path, tokenizer, config=None, model=None, **files):
    path.mkdir(parents=True)
    tokenizer.save(str(path / "tokenizer.json"))
    if config is not None:
        files["tokenizer_config"] = config
    if model:
        files["config"] = model
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def warnings_of(*directories):
    done = subprocess.run([str(BIN), "warnings", *map(str, directories)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def added(tokenizer):
    return {token["content"] for token in json.loads(tokenizer.to_str())["added_tokens"]}


def parts(part):
    """A normalizer or pre-tokenizer as the list of its members, without fields that change no
    id."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        inside = part.get("normalizers", part.get("pretokenizers"))
        return [member for each in inside for member in parts(each)]
    return [{key: value for key, value in part.items() if key != "trim_offsets"}]


def structure(tokenizer):
    """All parts of a tokenizer on which ids depend, except its tables."""
    file = json.loads(tokenizer.to_str())
    model = file["model"]
    flags = ("type", "byte_fallback", "ignore_merges", "max_input_chars_per_word")
    return [parts(file["normalizer"]), parts(file["pre_tokenizer"]),
            [model.get(flag) for flag in flags], added(tokenizer),
            tokenizer.encode("").ids]


BESIDE = {
    "nothing": {},
    "plain": {"config": FAST},
    "added_tokens": {"config": FAST, "added_tokens": {"<extra>": 400}},
    "added_tokens_decoder": {"config": {**FAST, "added_tokens_decoder": {
        "400": {"content": "<extra>", **FLAGS}, "0": {"content": "<|endoftext|>", **FLAGS}}}},
    "decoder_over_files": {"config": {"added_tokens_decoder": {"400": {"content": "<extra>", **FLAGS}}},
                           "added_tokens": {"<a1>": 400},
                           "special_tokens_map": {"pad_token": "<a2>"}},
    "extra_list": {"config": {**FAST, "extra_special_tokens": ["<extra>", {"content": "<a1>", **FLAGS,
                                                                          "__type": "AddedToken"}]}},
    "extra_dict": {"config": {**FAST, "extra_special_tokens": {"image_token": "<extra>"}}},
    "additional": {"config": {**FAST, "additional_special_tokens": ["<extra>"]}},
    "additional_beside_extra": {"config": {**FAST, "additional_special_tokens": ["<a1>"],
                                           "extra_special_tokens": ["<extra>"]}},
    "pad": {"config": {**FAST, "pad_token": "<extra>", "add_bos_token": True, "bos_token": None}},
    "pad_object": {"config": {**FAST, "pad_token": {"content": "<extra>", **FLAGS, "__type": "AddedToken"}}},
    "own_name": {"config": {**FAST, "image_token": "<extra>"}},
    "map": {"config": FAST, "special_tokens_map": {"pad_token": "<extra>"}},
    "map_object": {"special_tokens_map": {"pad_token": {"content": "<extra>", **FLAGS}}},
    "map_list": {"config": FAST, "special_tokens_map": {"additional_special_tokens": ["<extra>"]}},
    "map_over_config": {"config": {**FAST, "pad_token": "<a1>"}, "special_tokens_map": {"pad_token": "<extra>"}},
    "all_there": {"config": {**FAST, "bos_token": "<s>", "pad_token": "</s>"},
                  "special_tokens_map": {"eos_token": "</s>"}, "added_tokens": {"<unk>": 3}},
}


def test_tokens_beside_the_file_that_auto_tokenizer_adds_are_listed_and_no_others(tmp_path):
    tokenizer = STYLES["llama3"]()
    paths = [write(tmp_path / name, tokenizer, **beside) for name, beside in BESIDE.items()]
    listed = 0
    for path, warnings in zip(paths, warnings_of(*paths)):
        auto = transformers.AutoTokenizer.from_pretrained(path)
        new = added(auto.backend_tokenizer) - added(tokenizer)
        named = {token for token in ("<extra>", "<a1>", "<a2>") if f'"{token}"' in "".join(warnings)}
        assert named == new, (path.name, warnings)
        assert len(warnings) == bool(new), (path.name, warnings)
        if not new:
            continue
        listed += 1
        assert "AutoTokenizer adds" in warnings[0] and "save_pretrained" in warnings[0]
        # The remedy that the warning gives works.
        auto.save_pretrained(path / "out")
        assert warnings_of(path / "out") == [[]], path.name
        saved = Tokenizer.from_file(str(path / "out/tokenizer.json"))
        assert [saved.encode(text).ids for text in SAMPLES] == auto(SAMPLES)["input_ids"]
    assert listed > 10


def test_a_token_that_is_only_a_piece_of_the_vocabulary_or_has_other_rules_is_listed(tmp_path):
    tokenizer = STYLES["llama3"]()
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [token for token in file["added_tokens"] if token["content"] != "<s>"]
    path = write(tmp_path / "piece", Tokenizer.from_str(json.dumps(file)), {**FAST, "bos_token": "<s>"})
    assert '"<s>" (bos_token of tokenizer_config.json)' in warnings_of(path)[0][0]
    auto = transformers.AutoTokenizer.from_pretrained(path)
    assert auto("a<s>b", add_special_tokens=False).input_ids != \
        Tokenizer.from_file(str(path / "tokenizer.json")).encode("a<s>b").ids
    decoder = {"1": {"content": "<s>", **FLAGS, "lstrip": True}}
    path = write(tmp_path / "rules", tokenizer, {**FAST, "added_tokens_decoder": decoder})
    assert '"<s>" (lstrip is true there, false in tokenizer.json)' in warnings_of(path)[0][0]
    auto = transformers.AutoTokenizer.from_pretrained(path)
    assert auto("a <s>b").input_ids != tokenizer.encode("a <s>b").ids


MODEL_TYPES = [None, *json.loads((pathlib.Path(__file__).resolve().parents[1] / "families.json").read_text())]
CLASSES = [None, "PreTrainedTokenizerFast", "LlamaTokenizerFast", "GPT2TokenizerFast", "Qwen2Tokenizer",
           "GPTNeoXTokenizerFast", "BertTokenizerFast"]
MORE_CLASSES = ["LlamaTokenizer", "CodeLlamaTokenizer", "CodeGenTokenizer", "RobertaTokenizerFast",
                "GemmaTokenizerFast", "CohereTokenizerFast", "BertTokenizer", "NoSuchTokenizer"]
SETTINGS = [("llama2", {"tokenizer_class": "LlamaTokenizer", "legacy": True}),
            ("metaspace", {"tokenizer_class": "LlamaTokenizer", "legacy": True}),
            ("metaspace", {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False}),
            ("gpt2_space", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}),
            ("bert_cased", {"tokenizer_class": "BertTokenizer", "do_lower_case": False}),
            ("bert", {"tokenizer_class": "BertTokenizer", "strip_accents": False}),
            ("bert", {"tokenizer_class": "BertTokenizer", "tokenize_chinese_chars": False})]


@pytest.mark.parametrize("every_pair", [False, *later(True)])
@pytest.mark.parametrize("style", STYLES)
def test_a_class_is_warned_of_where_it_builds_another_tokenizer_and_nowhere_else(style, every_pair,
                                                                                tmp_path):
    tokenizer = STYLES[style]()
    pairs = [(model, name) for m, model in enumerate(MODEL_TYPES) for n, name in enumerate(CLASSES)
             if every_pair or 0 in (m, n) or (m + n) % 4 == 0]
    pairs += [(None, name) for name in MORE_CLASSES]
    cases = [(model, {"tokenizer_class": name} if name else {}) for model, name in pairs]
    cases += [(None, config) for of, config in SETTINGS if of == style]
    paths = [write(tmp_path / str(i), tokenizer, config, {**LLAMA, "model_type": model} if model else None)
             for i, (model, config) in enumerate(cases)]
    verdicts = []
    for case, path, warnings in zip(cases, paths, warnings_of(*paths)):
        try:
            auto = transformers.AutoTokenizer.from_pretrained(path).backend_tokenizer
        except Exception:  # a class that cannot be built of this vocabulary
            assert len(warnings) == 1, (case, warnings)
            continue
        same = structure(auto) == structure(tokenizer)
        assert same == (not warnings), (case, warnings, structure(auto), structure(tokenizer))
        assert all("of transformers 5 cuts text otherwise" in warning for warning in warnings), warnings
        if same:
            assert [auto.encode(text).ids for text in SAMPLES] == \
                [tokenizer.encode(text).ids for text in SAMPLES], case
        verdicts.append(same)
    assert True in verdicts and False in verdicts


def test_every_class_of_transformers_that_does_not_read_the_file_is_known(tmp_path):
    names = {name for name in tokenization_auto.TOKENIZER_MAPPING_NAMES.values() if name}
    names -= {"MistralCommonBackend"}
    names = sorted(names)
    tokenizer = Tokenizer(models.WordLevel({"a": 0}))  # of no class
    tokenizer = STYLES["llama3"]()
    file = json.loads(tokenizer.to_str())
    file["normalizer"] = {"type": "Lowercase"}
    tokenizer = Tokenizer.from_str(json.dumps(file))
    paths = [write(tmp_path / name, tokenizer, {"tokenizer_class": name}) for name in names]
    for name, warnings in zip(names, warnings_of(*paths)):
        found = tokenization_auto.tokenizer_class_from_name(name)
        reads = issubclass(found, TokenizersBackend) and (
            found is TokenizersBackend or "__init__" not in found.__dict__)
        # A file of a byte-level model is read, whatever Llama's class would make of it.
        reads = reads or name == "LlamaTokenizer"
        assert bool(warnings) != reads, (name, warnings)


# Classes that read a SentencePiece model, with the name that each gives the file.
MOVED = {"XLMRobertaTokenizer": "sentencepiece.bpe.model", "MBartTokenizer": "sentencepiece.bpe.model",
         "MBart50Tokenizer": "sentencepiece.bpe.model", "NllbTokenizer": "sentencepiece.bpe.model",
         "CamembertTokenizer": "sentencepiece.bpe.model", "PLBartTokenizer": "sentencepiece.bpe.model",
         "SeamlessM4TTokenizer": "sentencepiece.bpe.model"}
AROUND = {"T5Tokenizer": "spiece.model", "BigBirdTokenizer": "spiece.model", "XLNetTokenizer": "spiece.model",
          "LlamaTokenizer": "tokenizer.model", "CodeLlamaTokenizer": "tokenizer.model"}
ENDS = [{}, {"add_bos_token": True}, {"add_bos_token": False}, {"add_eos_token": True},
        {"add_eos_token": False}, {"add_bos_token": True, "add_eos_token": True}]


@pytest.fixture(scope="module")
def pieces():
    text = ["the quick brown fox jumps over the lazy dogs. hi there, hello world it is fine"] * 20
    return {kind: sentencepiece_model(text, model_type=kind, vocab_size=size)
            for kind, size in [("unigram", 60), ("bpe", 80)]}


def beside_model(path, name, model, **config):
    path.mkdir(parents=True)
    (path / name).write_bytes(model)
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def build(path, out):
    (out.parent / "a.txt").write_text("hi there")
    return subprocess.run([str(BIN.parent / "longhaul"), "data", "build", str(out.parent / "a.txt"),
                           "--tokenizer", str(path), "--special-tokens", "tokenizer", "--out", str(out)],
                          capture_output=True, text=True)


@pytest.mark.parametrize("name", MOVED)
def test_a_class_that_moves_the_pieces_of_a_model_is_refused_with_the_way_out(name, pieces, tmp_path):
    path = beside_model(tmp_path / "m", MOVED[name], pieces["unigram"], tokenizer_class=name)
    auto = transformers.AutoTokenizer.from_pretrained(path)
    library = sentencepiece.SentencePieceProcessor(model_proto=pieces["unigram"])
    assert auto("hi there", add_special_tokens=False).input_ids != library.encode("hi there")
    said = f"the tokenizer_class {name} gives the pieces of {path / MOVED[name]} other ids"
    assert said in warnings_of(path)[0][0]
    # The remedy that the message gives works.
    auto.save_pretrained(tmp_path / "out")
    if (tmp_path / "out/tokenizer.json").exists():  # PLBart has none
        assert our_results(tmp_path / "out", ["hi there"], tmp_path)[0][0] == auto("hi there").input_ids
    done = build(path, tmp_path / "store")
    assert done.returncode == 78 and said in done.stderr and "save_pretrained" in done.stderr


def test_a_class_that_only_the_models_type_tells_is_refused_too(pieces, tmp_path):
    path = beside_model(tmp_path / "m", "sentencepiece.bpe.model", pieces["unigram"])
    (path / "config.json").write_text(json.dumps({"model_type": "xlm-roberta"}))
    done = build(path, tmp_path / "store")
    assert done.returncode == 78 and "XLMRobertaTokenizer (of model_type xlm-roberta)" in done.stderr


@pytest.mark.parametrize("name", AROUND)
def test_other_ends_of_a_text_than_those_of_a_models_class_are_a_warning_and_nothing_else_is(
        name, pieces, tmp_path):
    kind = "bpe" if "Llama" in name else "unigram"
    paths = [beside_model(tmp_path / str(i), AROUND[name], pieces[kind], tokenizer_class=name, **ends)
             for i, ends in enumerate(ENDS)]
    verdicts = []
    for i, (path, warnings) in enumerate(zip(paths, warnings_of(*paths))):
        theirs = transformers.AutoTokenizer.from_pretrained(path)("hi there").input_ids
        ours = our_results(path, ["hi there"], tmp_path)[0][0]
        assert len(warnings) == (ours != theirs), (ENDS[i], warnings, ours, theirs)
        verdicts.append(bool(warnings))
    assert True in verdicts


TIKTOKEN = "".join(f"{token} {rank}\n" for rank, token in enumerate(["IQ==", "Ig==", "Iw==", "IHQ="]))


def refused(path):
    done = subprocess.run([str(BIN), "warnings", str(path)], capture_output=True, text=True)
    assert done.returncode == 78, done.stdout
    return done.stderr


@pytest.mark.parametrize("name", ["tokenizer.model", "qwen.tiktoken"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_tiktoken_file_is_called_by_its_name_with_the_way_out(name, end, tmp_path):
    (tmp_path / name).write_bytes(TIKTOKEN.replace("\n", end).encode())
    said = refused(tmp_path / name)
    assert f"{name}: is a tiktoken file" in said and "longhaul reads a tokenizer.json" in said
    assert "SentencePiece model" in said and "save_pretrained" in said


def test_other_tokenizers_files_are_called_by_their_names(tmp_path):
    (tmp_path / "tekken.json").write_text(json.dumps({"config": {}, "vocab": []}))
    assert "Mistral's own tekken form" in refused(tmp_path / "tekken.json")
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1}))
    assert "a vocabulary alone" in refused(tmp_path / "vocab.json")
    assert "but vocab.json, tekken.json; longhaul reads a tokenizer.json" in refused(tmp_path)


def test_the_end_token_is_that_of_auto_tokenizer_where_two_files_name_one(tmp_path):
    tokenizer = STYLES["llama3"]()
    beside = {"special_tokens_map": {"eos_token": "</s>"}}
    names = {"map": {"eos_token": "<s>"}, "config": {"eos_token": "<s>", "added_tokens_decoder": {}}}
    for name, config in names.items():
        path = write(tmp_path / name, tokenizer, config, **beside)
        auto = transformers.AutoTokenizer.from_pretrained(path)
        (tmp_path / "a.txt").write_text("a")
        done = subprocess.run([str(BIN.parent / "longhaul"), "data", "build", str(tmp_path / "a.txt"),
                               "--tokenizer", str(path), "--special-tokens", "eos", "--json",
                               "--out", str(tmp_path / f"{name}-out")], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        tokens = (tmp_path / f"{name}-out/tokens_00000.bin").read_bytes()
        assert int.from_bytes(tokens[-2:], "little") == auto.eos_token_id
