"""Other tokenizers as bench_tokenize.py wants them: one process, one thread.

    peer_tokenize.py huggingface|tiktoken|gigatoken-files|gigatoken-batch DIR TEXTS PASSES IDS

DIR holds the tokenizer.json; TEXTS and IDS are those of bench/tokenize.cpp. Prints the
seconds of each pass."""

import json
import os
import pathlib
import struct
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


def read_texts(path):
    data, pos, texts = pathlib.Path(path).read_bytes(), 0, []
    while pos < len(data):
        (size,) = struct.unpack_from("<I", data, pos)
        texts.append(data[pos + 4:pos + 4 + size])
        pos += 4 + size
    return texts


def byte_of_letter():
    """The alphabet in which a tokenizer.json writes bytes."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {**{chr(b): b for b in own}, **{chr(256 + i): b for i, b in enumerate(others)}}


def huggingface(folder, texts):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    strings = [text.decode() for text in texts]
    return lambda: [tokenizer.encode(s, add_special_tokens=False).ids for s in strings]


def tiktoken(folder, texts):
    import tiktoken as library
    spec = json.loads(pathlib.Path(folder, "tokenizer.json").read_text())
    letters = byte_of_letter()
    special = {token["content"] for token in spec["added_tokens"]}
    ranks = {bytes(letters[c] for c in token): i for token, i in spec["model"]["vocab"].items()
             if token not in special}
    pattern = next(part["pattern"]["Regex"] for part in spec["pre_tokenizer"]["pretokenizers"]
                   if part["type"] == "Split")
    encoding = library.Encoding("bench", pat_str=pattern, mergeable_ranks=ranks,
                                special_tokens={})
    strings = [text.decode() for text in texts]
    return lambda: [encoding.encode_ordinary(s) for s in strings]


def gigatoken(folder, texts, from_files):
    import gigatoken as library
    spec = json.loads(pathlib.Path(folder, "tokenizer.json").read_text())
    spec["post_processor"] = None  # no BOS, as in the others
    tokenizer = library.Tokenizer.from_json(json.dumps(spec))
    if not from_files:
        return lambda: tokenizer.encode_batch(texts, parallel=False)
    where = pathlib.Path(tempfile.mkdtemp(dir=folder))
    paths = []
    for i, text in enumerate(texts):
        paths.append(where / f"{i:06}.txt")
        paths[-1].write_bytes(text)
    source = library.TextFileSource(paths)
    return lambda: tokenizer.encode_files(source, parallel=False)


def main():
    name, folder, path, passes, out = sys.argv[1:]
    texts = read_texts(path)
    encode = {"huggingface": huggingface, "tiktoken": tiktoken,
              "gigatoken-files": lambda f, t: gigatoken(f, t, True),
              "gigatoken-batch": lambda f, t: gigatoken(f, t, False)}[name](folder, texts)
    for _ in range(int(passes)):
        start = time.perf_counter()
        ids = encode()
        print(f"{time.perf_counter() - start:.6f}")
    with open(out, "wb") as file:
        for some in ids:
            some = [int(i) for i in some]
            file.write(struct.pack(f"<I{len(some)}I", len(some), *some))


if __name__ == "__main__":
    main()
