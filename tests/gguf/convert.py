"""convert.py LLAMA.CPP PRE ARGUMENTS...: runs llama.cpp's converter. It finds a pre-tokenizer by a
hash over known vocabularies; in place of it stands PRE, since the tests' vocabularies are new."""

import json
import pathlib
import sys

source, pre = sys.argv[1:3]
sys.argv[1:] = sys.argv[3:]
for folder in (source, str(pathlib.Path(source, "gguf-py"))):
    sys.path.insert(0, folder)

from conversion import base  # noqa: E402

base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
load = base.ModelBase.load_hparams


def load_hparams(directory, is_mistral_format):
    """With the field of GPT-NeoX that transformers 5 has under another name."""
    fields = load(directory, is_mistral_format)
    given = json.loads(pathlib.Path(directory, "config.json").read_text())
    return {**fields, **{key: given[key] for key in ("rotary_pct",) if key in given}}


base.ModelBase.load_hparams = staticmethod(load_hparams)

import convert_hf_to_gguf  # noqa: E402

convert_hf_to_gguf.main()
