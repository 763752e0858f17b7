"""Messages are read by people in a hurry: no sentence of a text that the program prints has more
than 35 words. Read are the strings of apps/ and longhaul/, one behind the other as the compiler
joins them, and those that + joins. Left out are raw strings (scripts, styles, patterns), lines
that are indented (examples) and lists of names, which have no words of a sentence.

messages_baseline.txt has, per file, how many problems are left (see baseline.py).
`check_messages.py PATH...` prints every problem below these paths.
"""

import re

import baseline
import check_comments
import house

RULE = baseline.Rule("messages")
LONGEST = 35
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^()\s\\]*)\(.*?\)\1"|"(?P<text>(?:\\.|[^"\\\n])*)"|'
                   r"(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'", re.S)
# Two strings of one text have nothing, a plus, or a value between them that is added. A value
# counts as one word.
JOINED = re.compile(r'\s*(?:\+\s*(?P<value>[^;,"{}?]*?)\s*(?:\+\s*)?)?')
ESCAPES = {"n": "\n", "t": " ", '"': '"', "\\": "\\"}
OF_A_SENTENCE = re.compile(r"\b([Tt]he|is|are|of|to|and|or|with|not|it)\b")


def texts_of(source):
    """(line number, text) of each string, with those that follow it in the same text."""
    found, end = [], None
    for token in TOKEN.finditer(source):
        if token["text"] is None:
            if token[0].startswith("/") and end is not None and not source[end:token.start()].strip():
                end = token.end()  # a comment between two strings
            continue
        text = re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], " "), token["text"])
        between = JOINED.fullmatch(source[end:token.start()]) if end is not None else None
        if between:
            found[-1][1] += ("value" if between["value"] else "") + text
        else:
            found.append([source.count("\n", 0, token.start()) + 1, text])
        end = token.end()
    return found


def problems_of(name, source):
    found = []
    for line, text in texts_of(source):
        for sentence, _ in check_comments.sentences_of(text.split("\n")):
            words = len(sentence.split())
            if words > LONGEST and OF_A_SENTENCE.search(sentence):
                shown = sentence if len(sentence) <= 60 else sentence[:57] + "..."
                found.append(f"{name}:{line}: a sentence of {words} words, at most {LONGEST}: {shown}")
    return found


def main():
    RULE.main([n for n in house.files(*house.CODE) if n.startswith(("apps/", "longhaul/"))
               and not n.endswith("_test.cpp")], problems_of)


if __name__ == "__main__":
    main()
