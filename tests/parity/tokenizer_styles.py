"""Tokenizers in the style of published models, trained on the spot: the originals are not
to be had, their parts are.

Each style is a function of texts to a Hugging Face tokenizer.
"""
import functools
import io
import json
import random

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

from test_tokenizer import files, fuzzed, read, slices

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
MARK = "\u2581"


def many_languages(limit=None):
    """Real text in English, Russian, Chinese, Japanese, Korean, Greek, Arabic and code."""
    texts = slices(read("/usr/share/dictd/gcide.dict.dz")[:limit or 3_000_000])
    book = "/usr/share/doc/debian-handbook/html"
    for language in ["ru-RU", "zh-CN", "ja-JP", "ko-KR", "el-GR", "ar-MA", "vi-VN", "de-DE"]:
        texts += files(f"{book}/{language}/**/*.html", limit or 1_500_000)
    texts += files("/usr/lib/python3.11/**/*.py", limit or 3_000_000)
    texts += files("/usr/share/perl/*/pod/*.pod", limit or 3_000_000)
    return texts


def odd_texts(count, seed):
    """Texts that often break tokenizers: emoji, marks, controls, spaces, long words, added
    tokens."""
    rng = random.Random(seed)
    words = ["na\u00efve", "\u0130stanbul", "\u1e9e\u00df", "\uff21\uff22\uff23", "\ufb01ne", "\u2460\u00bd", "e\u0301\u0323", "\u212b\u212a",
             "\u0915\u094d\u0937\u093f", "\u1100\u1161\u11a8", "\uac01\uac02", "\u1112\u1161\u11ab\u0301",
             "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F1E9\U0001F1EA", "\u00a9\u200d\u00a9\u0301", "\u2764\ufe0f", "x" * 101, "y" * 99 + "\u00e9" * 3,
             "\u2581", "\u2581\u2581a", " \u2581 ", "<0x41>", "<unk>", "##ing", "\u4e2d\u6587", "\u3042\u30a2", "foo\u3000bar", "\u200b\ufeff",
             "...", "\u2026", "\u3002", "\uff01", "``''", "$100", "1,234.5", "\u0664\u0665", "\ufffd", "\x00", "\x7f\x8f", "\u0e33\u0e49", "\u01c4\u01c5", "\u03a3\u03c3\u03c2", "do not", " n't 's"]
    plain = fuzzed(count, seed)
    return [text if i % 2 else
            "".join(rng.choice(words) + rng.choice(["", " ", "  ", "\n", text[:rng.randrange(4)]])
                    for _ in range(rng.randrange(1, 8)))
            for i, text in enumerate(plain)]


def bpe_trainer(size, **more):
    return trainers.BpeTrainer(vocab_size=size, show_progress=False,
                               special_tokens=["<unk>", "<s>", "</s>", *BYTES],
                               limit_alphabet=600, **more)


def with_tokens(tokenizer):
    tokenizer.add_special_tokens(["[INST]", "<|im_start|>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False),
                          AddedToken("whole", single_word=True, normalized=False),
                          AddedToken("[LR]", lstrip=True, rstrip=True, normalized=False)])
    return tokenizer


def llama_like(texts, size, metaspace):
    """Llama-2 and Mistral: BPE with marks for spaces and bytes for the rest. In the first
    form a normalizer writes the marks and nothing is cut; in the second a pre-tokenizer."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.train_from_iterator(texts, bpe_trainer(size))
    tokenizer.pre_tokenizer = None
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=metaspace, split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([
            normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    return with_tokens(tokenizer)


def llama2(texts, size=4000):
    return llama_like(texts, size, None)


def mistral(texts, size=4000):
    return llama_like(texts, size, "first")


def metaspace_split(texts, size=3000):
    """A tokenizer as TinyLlama-like files have it: text is cut at every mark, unknown characters
    are kept apart, and there are no byte tokens."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(texts, bpe_trainer(size))
    tokenizer.decoder = decoders.Metaspace()
    return with_tokens(tokenizer)


def whole_words(texts, size=3000):
    """A tokenizer with ignore_merges and characters, and with add_prefix_space as in an old
    file."""
    spec = json.loads(metaspace_split(texts, size).to_str())
    spec["model"]["ignore_merges"] = True
    spec["model"]["fuse_unk"] = True
    return Tokenizer.from_str(json.dumps(spec))


def bert(texts, lowercase, size=4000):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(
        vocab_size=size, show_progress=False, limit_alphabet=800,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def bert_uncased(texts):
    return bert(texts, True)


def bert_cased(texts):
    tokenizer = bert(texts, False)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def unigram(texts, size=4000, **more):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(texts[:60], trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, unk_token="<unk>",
        special_tokens=["<pad>", "</s>", "<unk>"], **more))
    return tokenizer


def fields(message):
    """The fields of a protocol buffer message as (number, value); texts and messages are bytes."""
    pos = 0

    def varint():
        nonlocal pos
        value = shift = 0
        while True:
            byte = message[pos]
            pos += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while pos < len(message):
        tag = varint()
        size = {0: 0, 1: 8, 5: 4}[tag & 7] if tag & 7 != 2 else varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        else:
            yield tag >> 3, message[pos:pos + size]
            pos += size


def sentencepiece_model(texts, **options):
    """The bytes of a `.model` trained on lines of the texts."""
    lines = [line for text in texts for line in text.split("\n") if 0 < len(line) < 2000]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2, num_threads=1,
        hard_vocab_limit=False, **options)
    return model.getvalue()


@functools.lru_cache(maxsize=None)
def charsmap():
    """SentencePiece's own map nmt_nfkc, which T5 and XLM-R carry."""
    model = sentencepiece_model(["a b c d e f"] * 9, vocab_size=20, model_type="unigram")
    (spec,) = [value for number, value in fields(model) if number == 3]
    (found,) = [value for number, value in fields(spec) if number == 2]
    assert len(found) > 100_000
    return found


def t5(texts):
    """A tokenizer in T5's style: precompiled normalization, words, then Metaspace; </s> at the
    end."""
    tokenizer = unigram(texts)
    tokenizer.normalizer = normalizers.Precompiled(charsmap())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return with_tokens(tokenizer)


def xlm_r(texts):
    """A tokenizer in XLM-R's style as newer conversions have it: strip, fold runs of spaces,
    Metaspace; RobertaProcessing."""
    tokenizer = unigram(texts)
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Precompiled(charsmap()), normalizers.Strip(left=False, right=True),
        normalizers.Replace(Regex(" {2,}"), MARK)])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<pad>", 0))
    return with_tokens(tokenizer)


def albert(texts):
    """A tokenizer in ALBERT's style: Nmt, NFKC and accents, written out instead of precompiled."""
    tokenizer = unigram(texts, 2000)
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Nmt(), normalizers.NFKD(), normalizers.StripAccents(),
        normalizers.Lowercase(), normalizers.Replace("``", '"')])
    tokenizer.decoder = decoders.Metaspace()
    return with_tokens(tokenizer)


def unigram_bytes(texts):
    spec = json.loads(unigram(texts, 3000).to_str())
    have = {token for token, _ in spec["model"]["vocab"]}
    spec["model"]["vocab"] += [[byte, -12.0] for byte in BYTES if byte not in have]
    spec["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return with_tokens(tokenizer)


def byte_level(texts, steps, size=3000):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=["<|begin|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return with_tokens(tokenizer)


def isolated(regex):
    return pre_tokenizers.Split(Regex(regex), behavior="isolated")


def deepseek_llm(texts):
    return byte_level(texts, [
        isolated("[\r\n]"), isolated(r"\s?\p{L}+"), isolated(r"\s?\p{P}+"),
        isolated(r"\s+$"), isolated("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
        pre_tokenizers.Digits(individual_digits=True)])


def deepseek_v3(texts):
    return byte_level(texts, [
        isolated(r"\p{N}{1,3}"), isolated("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
        isolated("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
                 "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")])


STYLES = [llama2, mistral, metaspace_split, whole_words, bert_uncased, bert_cased, t5, xlm_r,
          albert, unigram_bytes, deepseek_llm, deepseek_v3]
