"""Pages are read by people in a hurry: no sentence has more than 35 words, and no paragraph more
than 120. Tables, code, quotations of output and pages of history are left out.

pages_baseline.txt has, per page, how many problems are left (see baseline.py).
`check_pages.py PATH...` prints every problem below these paths.
"""

import re

import baseline
import check_comments
import house

RULE = baseline.Rule("pages")
LONGEST_SENTENCE = 35
LONGEST_PARAGRAPH = 120
HISTORY = ("CHANGELOG.md", "docs/history/", "tests/", "shared/")
ITEM = re.compile(r"^\s*(?:[-*]|\d+[.)]) +(.*)")


def paragraphs_of(page):
    """(line number, text) of each paragraph and each item of a list."""
    found, begun, start, fence = [], "", 0, False
    for number, line in enumerate(page.split("\n") + [""], 1):
        if line.lstrip().startswith("```"):
            fence = not fence
        item = ITEM.match(line)
        apart = fence or not line.strip() or re.match(r"\s*(\||#|```|>|<|!\[| {4}\S)", line)
        if (apart or item) and begun:
            found.append((start, begun))
            begun = ""
        if not apart:
            start = start if begun else number
            begun = f"{begun} {item.group(1) if item else line.strip()}".strip()
    return found


def plain(text):
    """The text as a reader counts it: a link is its words, and a piece of code is one word."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]+`", "`code`", text)


def problems_of(name, page):
    found = []
    for line, text in paragraphs_of(page):
        text = plain(text)
        words = len(text.split())
        if words > LONGEST_PARAGRAPH:
            found.append(f"{name}:{line}: a paragraph of {words} words, at most {LONGEST_PARAGRAPH}")
        for sentence, _ in check_comments.sentences_of([text]):
            words = len(sentence.split())
            if words > LONGEST_SENTENCE:
                shown = sentence if len(sentence) <= 60 else sentence[:57] + "..."
                found.append(f"{name}:{line}: a sentence of {words} words, at most "
                             f"{LONGEST_SENTENCE}: {shown}")
    return found


def main():
    RULE.main([n for n in house.files(".md") if not n.startswith(HISTORY)], problems_of)


if __name__ == "__main__":
    main()
