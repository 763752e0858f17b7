"""Doc comments (`///`) are whole sentences: one above a function begins with a verb ("Returns ...")
or a condition ("When ..., it ..."), no sentence is a fragment ("Of those that ..."), and none has
more than 35 words. Line comments (`//`) have a rule of their own (line_comments.py).

comments_baseline.txt has, per file, how many problems are left (see baseline.py).
`check_comments.py PATH...` prints every problem below these paths.
"""

import re

import baseline
import house
import line_comments

RULE = baseline.Rule("comments")
LONGEST = 35
DOC = re.compile(r"^\s*///(?!/)(?P<member><?)\s?(?P<text>.*)$")
TRAILING = re.compile(r"^(?P<code>.*\S.*?)\s*///<\s?(?P<text>.*)$")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(\[0-9])")
SHORTENED = re.compile(r"(?:\b(?:e\.g|i\.e|cf|vs|etc|al|No|resp)|\.\.)\.$")

# Sentences that the field writes without a verb.
MARKS = re.compile(r"^(Collective|Thread-safe|Not thread-safe|Immutable)\b")
ADVERBS = r"(?:Also|Only|Never|Always|Then|First|Later|Again|Afterwards|Immediately)"
CONDITIONS = re.compile(r"^(If|When|Where|Whenever|Unless|While|After|Before|Until|Once|Since|"
                        r"Because|Although|For|Under|In|On|At|With|Without|During|Instead|By|To)\b")
MODAL = re.compile(rf"^({ADVERBS} )?(Must|May|Can|Cannot|Should|Is|Are|Has|Does|Do|Call|Use|See|"
                   r"Pass|Keep|Start|Link|Set|Give|Take|Run|Wait|Note)\b")
THIRD_PERSON = re.compile(rf"^(?:{ADVERBS} )?(?:[Rr]e-)?([A-Za-z]+s)\b(?: (\w+))?")
# Words that end in s and begin a phrase, not a statement.
NO_VERBS = set("""this its his as was thus plus minus status always sometimes perhaps less unless
    class address process pass access loss press progress success bias basis analysis atlas bus
    across besides towards whereas those
    bytes seconds minutes hours rows columns nodes tokens elements ids files directories paths
    sequences words characters kinds parts pieces values tensors parameters options settings
    errors kernels workers devices gradients weights moments sizes bits milliseconds entries lines
    threads processes messages ranks layers positions offsets indices differences
    digits documents facts fields floats headers machines members numbers objects others people
    products rules sentences sources strings sums things types units ways""".split())
MAY_BE_NOUNS = set("""names counts steps groups places marks means copies states stores forms plans
    links limits results records events blocks shares points tables lists marks orders times
    sets scores signs ends begins cuts costs reads writes hashes checks reports tests""".split())
NOUN_FOLLOWS = {"of", "per", "that", "which", "with", "whose", "from"}
FINITE = re.compile(r"\b(is|are|was|were|has|have|had|does|do|did|may|must|can|cannot|could|will|"
                    r"would|should|shall|might|need)\b", re.I)
PLURAL_OR_VERB = re.compile(r"\b[a-z]+s\b")
MEMBER_FRAGMENT = re.compile(r"^(of (that|those|these|them|it|which)|likewise|the same|so many|"
                             r"ditto|as (above|before|below|there))\b(?! as\b| (of|for) )", re.I)


LOOSE = {"where", "when", "if", "for", "unless", "with", "without", "while", "until", "before",
         "after", "at", "as", "like", "that", "and", "or", "in", "on", "naming", "also", ""}


def starts_as_value(sentence):
    """A phrase like "True when ...", which may stand above a member, but above no function."""
    found = re.match(r"(?:Nothing|Nobody|Null|Empty|True|False|None|Negative|-?\d+)\b(?!:)\W*(\w*)",
                     sentence)
    return bool(found and found.group(1) in LOOSE) or sentence.startswith("Whether ")


def starts_as_fragment(sentence):
    first = re.match(r"[\w'-]+", sentence)
    first = first.group(0) if first else ""
    rest = sentence[len(first):].strip()
    follows = re.match(r"\w+", rest)
    follows = follows.group(0).lower() if follows else ""
    if first in ("Of", "Likewise", "Ditto"):
        return True
    if first == "So":
        return follows in ("many", "much", "few")
    if first == "The":
        return follows == "same" and not has_verb(rest)
    if first == "As":
        return not re.search("[,:] ", sentence) or not has_verb(sentence)
    if first in ("That", "Which", "Those", "These"):
        if follows in ("of", "that", "which", "with", "for", "in", "from", "by") or not follows:
            return True
        return first in ("That", "Which") and not has_verb(rest)
    if re.fullmatch(r"\w*Error", first):
        return follows in LOOSE and not re.match(r",[^,]*, \w+s\b", rest)
    if first == "Not":
        return follows not in ("only", "thread")
    if first in ("Also", "Only", "Else", "Otherwise", "Never") and follows in (
            "of", "for", "where", "when", "in", "with", "by", "to", "from", "on", "at", "the", "a"):
        return not has_verb(rest)
    return False


def has_verb(sentence):
    """Returns False only for words that cannot be a sentence: they have no auxiliary, no verb in s
    and no imperative."""
    if FINITE.search(sentence) or MODAL.match(sentence):
        return True
    if re.match(r"(All|Both|They|Those|These|Callers|Errors(?! as))\b", sentence):  # verbs of the plural
        return True
    return any(word not in NO_VERBS for word in PLURAL_OR_VERB.findall(sentence)) or \
        says_what_it_does(sentence)


def says_what_it_does(sentence):
    """Whether a sentence begins as one above a function should."""
    if MODAL.match(sentence):
        return True
    if CONDITIONS.match(sentence):
        return ", " in sentence or bool(FINITE.search(sentence))
    found = THIRD_PERSON.match(sentence)
    if found:
        verb, follows = found.group(1).lower(), (found.group(2) or "").lower()
        if verb.endswith("ss") or verb in NO_VERBS:
            return False
        return not (verb in MAY_BE_NOUNS and follows in NOUN_FOLLOWS)
    # The subject of a whole sentence may be a parameter or the object itself.
    return bool(re.match(r"^(`[^`]+`|It|The (caller|result|returned|object|function)\b)", sentence)
                and not re.match(r"^`[^`]+`:", sentence)
                and (FINITE.search(sentence) or re.match(r"^\S+ [a-z]+s\b", sentence)))


def sentences_of(lines):
    """The sentences of a comment as (sentence, whether it is outside of a list's items). A formula,
    which is indented, is left out."""
    blocks, begun, whole = [], "", True
    for line in lines:
        item = re.match(r"^\s*(?:[-*]|\d+[.)]) +(.*)", line)
        if item or not line.strip() or line.startswith("  ") and whole:
            blocks.append((begun, whole))
            begun, whole = item.group(1) if item else "", not item
        else:
            begun = f"{begun} {line.strip()}".strip()
    blocks.append((begun, whole))
    found = []
    for text, whole in blocks:
        joined = ""
        for part in SENTENCE.split(text):
            joined = f"{joined} {part}".strip()
            if not SHORTENED.search(joined):
                found.append((joined, whole))
                joined = ""
        if joined:
            found.append((joined, whole))
    return [(sentence, whole) for sentence, whole in found if sentence]


def kind_of(declaration):
    """What a comment stands above: "function", "type" or "value"."""
    code = re.sub(r"\[\[.*?\]\]|alignas\([^)]*\)|noexcept\([^)]*\)", "", declaration)
    code = re.sub(r"\btemplate\s*<.*?>\s*(?=\w)", "", code, count=1).strip()
    if re.match(r"(class|struct|enum|union|namespace|using|typedef|concept|friend class|#)", code):
        return "type"
    if re.match(r"(TEST|TEST_F|TEST_P|INSTANTIATE_TEST_SUITE_P|return|for|if|while)\b", code):
        return "value"
    while re.search(r"<[^<>]*>", code):
        code = re.sub(r"<[^<>]*>", "", code)
    before = code.split("=", 1)[0] if "operator" not in code else code
    return "function" if re.search(r"[\w\]=+*/<>!-]\s*\(", before) else "value"


def comments_of(source):
    """(line number, kind, lines) of each doc comment; "member" is one behind its code."""
    lines = source.split("\n")
    found, number = [], 0
    while number < len(lines):
        start, line = number, lines[number]
        number += 1
        if "///" not in line:
            continue
        trailing, above = TRAILING.match(line), DOC.match(line)
        if above and not above.group("member"):
            text = [above.group("text")]
            while number < len(lines) and (more := DOC.match(lines[number])) \
                    and not more.group("member"):
                text.append(more.group("text"))
                number += 1
            declaration = ""
            for line in lines[number:number + 12]:
                declaration += " " + re.sub(r"//.*", "", line).strip()
                if re.search(r"[;{}]\s*(//.*)?$", line):
                    break
            found.append((start + 1, kind_of(declaration.strip()), text))
        elif trailing and not trailing.group("code").lstrip().startswith("//"):
            text = [trailing.group("text")]
            while number < len(lines) and (more := DOC.match(lines[number])) \
                    and more.group("member"):
                text.append(more.group("text"))
                number += 1
            found.append((start + 1, "member", text))
    return found


def problem_of(kind, sentence, first, whole):
    """What is wrong with a sentence, or nothing; at most one thing."""
    words = len(sentence.split())
    if words > LONGEST:
        return f"a sentence of {words} words, at most {LONGEST}"
    if kind == "member":
        return "no subject to refer to" if MEMBER_FRAGMENT.match(sentence) else None
    if not whole or MARKS.match(sentence) or not sentence[0].isalpha() and sentence[0] != "`" \
            and not sentence[0].isdigit():
        return None
    if starts_as_fragment(sentence) or starts_as_value(sentence) and (
            kind == "function" or not first):
        return "a fragment"
    if kind == "function" and first and not says_what_it_does(sentence):
        return "above a function, but does not begin with what it does"
    if not first and words <= 4 and not has_verb(sentence):
        return "a sentence without a verb"
    return None


def report(name, line, problem, sentence):
    shown = sentence if len(sentence) <= 60 else sentence[:57] + "..."
    return f"{name}:{line}: {problem}: {shown}"


def doc_problems(name, source):
    found = []
    for line, kind, text in comments_of(source):
        first = True
        for sentence, whole in sentences_of(text):
            problem = problem_of(kind, sentence, first, whole)
            if problem:
                found.append(report(name, line, problem, sentence))
            first = first and bool(MARKS.match(sentence))
    return found


def line_problems(name, source):
    found = []
    for line, code, text in line_comments.blocks_of(source):
        if code is None:
            problem = line_comments.phrase_problem(text[0])
            found += [report(name, line, problem, text[0])] if problem else []
            continue
        for number, (sentence, whole) in enumerate(sentences_of(text)):
            words = len(sentence.split())
            problem = f"a sentence of {words} words, at most {LONGEST}" if words > LONGEST else None
            if whole and not problem:
                problem = line_comments.problem_of(sentence, number == 0, code)
            found += [report(name, line, problem, sentence)] if problem else []
    return found


def problems_of(name, source):
    return doc_problems(name, source) + line_problems(name, source)


def main():
    RULE.main([n for n in house.files(*house.CODE) if not n.startswith("tests/fixtures/")],
              problems_of)


if __name__ == "__main__":
    main()
