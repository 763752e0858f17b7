"""Line comments (`//`) are whole sentences, which a reader understands without the code around them.
check_comments.py asks this rule beside its own for doc comments.

A sentence has a noun as its subject, and a verb. Reported are
- a clause without a verb: "For the next start.", "A device that does not answer.";
- a clause as the subject: "What is left goes on.";
- "who" and "whoever" without a person or a program before them;
- a pronoun that begins a comment: "It comes again.";
- a sentence that continues another one: "Nor has this one.";
- a colon behind words without a verb: "Out of files: the next look tries again.";
- abbreviations of our own.
A phrase may stand above a declaration ("The newest step."). A comment behind code may be a phrase,
which says what it is about.
"""

import re

LINE = re.compile(r"^\s*//(?!/)\s?(?P<text>.*)$")
BEHIND = re.compile(r"^(?P<code>.*\S.*?)\s+//(?!/)\s?(?P<text>.*)$")
RAW = re.compile(r'R"([^()\s\\]*)\(.*?\)\1"', re.S)
# Marks for tools and of generated files, and the ends of long blocks.
NO_WORDS = re.compile(r"^(NOLINT|Written by tools/|clang-format|namespace\b|@|---)")
# A row of a table: words in columns.
ROW = re.compile(r"\S {2,}\S")
QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|\([^)]*\)")

AUXILIARY = re.compile(r"(?:is|are|was|were|has|have|had|does|do|did|may|must|can|cannot|could|will|"
                       r"would|should|shall|might|need|needs|stays?|lets?)", re.I)
PLURALS = set("""accept add agree allow answer appear apply arrive ask be become begin behave belong
    bind bound bring build call carry catch change check choose come compare compute contain copy cost
    count cover cut decide decode define delete depend die differ drop end enter fail fall fetch fill find
    finish fit fold follow form free get give go grow hand hang happen hold ignore include install join
    keep know leave lie limit link list load lock look lose make mark match matter mean meet merge mount
    move multiply name note notice open outlive overwrite panic pass pay point print put reach read
    refuse remove repeat replace report reserve return reuse round run save say search see send set
    settle share show skip sleep sort speak spell stand start stop store sum survive take tell test throw
    touch train trust try use vary visit wait want watch work write zero""".split())
PAST = set("began came ended failed found held knew left lost made met ran said saw sent stood told "
           "took went wrote".split())
NO_VERBS = set("""afterwards across always analysis atlas basis besides bias bits blocks bytes
    characters columns copies days devices differences digits directories documents elements entries
    errors events experts facts fields files floats forms gradients groups headers heads hours ids
    indices items its kernels kinds layers lines lists machines members messages milliseconds minus
    minutes moments names nodes numbers objects offsets options others parameters parts paths people
    perhaps pieces places plans plus positions processes products progress ranks readers results rows
    rules seconds sentences sequences settings shards sizes sometimes sources states status strings
    sums tables tensors texts things this threads thus tokens towards types unless units values was
    ways weights whereas words workers writers""".split())
# No verb in s stands behind these words ("the reads"), and no plural ("must read").
BEFORE_NOUNS = set("""a all an and any at between both by each every few first four from in its last
    many more most next no of on or other our over own same several some such the their these this
    those three through to two under with within without your""".split())
BEFORE_BASES = BEFORE_NOUNS - {"all", "and", "both", "or", "some", "these", "those"} | set(
    "may must can cannot will would could should do does not".split())
ONE = {"a", "an", "the", "this", "each", "every", "one", "its", "another", "no"}
OBJECTS = {"a", "an", "the", "its", "no", "their", "itself", "another"}
# What follows the main clause of a sentence.
TAIL = re.compile(r", (?:so that|since|because) ")
OPENS_CLAUSE = ("that which who whose whom whoever whatever where wherever when whenever if because unless "
                "until while whether").split()
CLAUSE = re.compile(r"(?<!\bfor )(?<!\bof )(?<!\bin )(?<!\bto )(?<!\bby )(?<!\band )(?<!\bat )(?<!\bif )"
                    rf"(?<!\ba )\b(?:{'|'.join(OPENS_CLAUSE)})\b(?! *[.,;:]| of\b|$)", re.I)
AND_VERB = re.compile(rf"\band {AUXILIARY.pattern}\b")

AS_SUBJECT = re.compile(r"^(?:What|Whatever|Who|Whoever|Whose|Whom|Which|Whichever|How|Why)\b(?!.*\?$)")
NOBODY = re.compile(r"(?:^|[,;:] |\b(?:by|of|for|to|and|or|than|from|as|with|like|about) )"
                    r"(?:who|whoever|whomever)\b", re.I)
MODAL = r"(?:is|are|was|were|has|have|had|do|does|did|may|must|can|cannot|could|will|would|should)"
LOOSE = re.compile(
    r"^(?:(?:It|They|Them|Its|Their)\b|Each (?:is|has|may|[a-z]+(?<!s)s)\b"
    rf"|(?:This|That) (?:also |only |then )?(?:{MODAL}|[a-z]+(?<!s)s)\b(?! (?:an?|the) )"
    rf"|(?:These|Those) (?:also |two |only )?(?:{MODAL}(?! the\b)|come|stay|stand|lie|need|go)\b"
    r"|(?:This|These|Those|That) (?:of|that|which|who|in|with|for)\b"
    r"|(?:Ones?|Another|Others) (?:that|which|who|whose|of|with|is|are|was|has|may|must|in|than|on)\b"
    rf"|Others {MODAL}\b|None of\b|Both (?:are|have|lie)\b|Either (?:is|may)\b"
    rf"|The (?:others?|latter|former|rest|ones?|last|first|second|third|same)"
    rf" (?:{MODAL}|that|which|who|of them|one)\b)")
# "rank 0's.", "another start's may lie there": a possessive whose noun is left out.
OWNS_NOTHING = re.compile(r"\b(?!it's|let's)[\w)]+'s(?: own)?(?=[.,;:]|$| (?:may|must|are|is|was|were|has|have|lie)\b)")
BEHIND_COLON = re.compile(r": (?:it|they|them|their|these|those|others?|another)\b(?! [a-z]+ (?:is|are|has|may)\b)")
PARTICIPLE = re.compile(r"^(?:[A-Z][a-z]+ed|Known|Kept|Taken|Bound|Written|Made|Given|Held|Drawn|Shown|Sent|Left) "
                        r"(?:by|at|with|on|to|where|when|over|once|first|in|from|until|not|only|here|like)\b(?!.*, )")
LOOSE_LATER = re.compile(r"^(?:(?:Those|The ones?) (?:of|that|which|who|whose|with|in)|"
                         r"Ones? (?:that|which|whose))\b")
CONTINUES = re.compile(r"^(?:And|Or|But|Nor|So|Else|Otherwise|Also|Too|Hence|Likewise|Ditto|Apart|Not|"
                       r"Only (?:so|if|where|when|to|for|up))\b")
SHORT = re.compile(r"(?<![\w.:/_<-])(w/o?|b/c|incl\.|resp\.|approx\.|ckpt|cfg|fwd|bwd|attn|prev|idx|ctx|"
                   r"tmp|impl|cnt|elems?|dirs?|addr|mem|req|vars?)(?![\w(:/_>-])")
PHRASE = re.compile(
    r"^(?:of|for|it|they|them|those|these|this (?:is|has|may)|that|who|what|whoever|its|their|"
    r"the others?|the one|ones? (?:that|of|which|after)|another one|and|nor|but|also|likewise|there|"
    r"here|not|else|as|until (?:it|they)|the same(?! \w)|so many|(?:to|in|from|by|with) it)\b", re.I)
# Code that declares something, about which a phrase may stand above it.
DECLARES = re.compile(
    r"(?!return|throw|delete|else|case|goto)(?:$|constexpr|const|static|struct|class|enum|namespace|"
    r"using|inline|extern|template|virtual|friend|#|\[\[|TEST|std::\w+<|(?:[\w:<>,*& ]+ )\w+(?:\[.*\])?(?: = .*|\{.*)?;$|"
    r"[\w:<>*& ]+ \w+\(.*\) (?:const )?\{|NLOHMANN_)")
NO_PHRASE = re.compile(r"^(?:For|With|Without|By|In|On|At|Behind|Above|Below|Between|Beside|As|After|"
                       r"Before|Until|To)\b")


def blocks_of(source):
    """[line number, the code below, lines] of each comment that has words. The code is None for a
    comment behind code."""
    found, begun = [], None
    source = RAW.sub(lambda raw: "\n" * raw.group(0).count("\n"), source)
    for number, line in enumerate(source.split("\n"), 1):
        has = "//" in line  # the expressions are slow on the many lines without a comment
        whole, behind = has and LINE.match(line), has and BEHIND.match(line)
        if whole:
            if begun is None:
                begun = [number, "", []]
                found.append(begun)
            begun[2].append("" if ROW.search(whole["text"]) else whole["text"])
            continue
        if begun:
            begun[1], begun = line, None
        in_string = behind and len(re.findall(r'(?<!\\)"', behind["code"])) % 2
        if behind and not in_string and not behind["code"].lstrip().startswith("//"):
            found.append([number, None, [behind["text"]]])
    return [block for block in found if any(block[2]) and not NO_WORDS.match(block[2][0].strip("/< "))]


def is_verb(words, at, in_clause):
    """Whether a word is surely or probably a finite verb."""
    word, before = words[at], words[at - 1] if at else ""
    behind = words[at + 1] if at + 1 < len(words) else ""
    if AUXILIARY.fullmatch(word) or word in PAST:
        return True
    if re.fullmatch(r"[a-z]+s", word) and not word.endswith(("ss", "us")):
        if before in BEFORE_NOUNS:
            return False
        if at == 0 and behind not in {"", "of", "that", "with", "from", "per", "and", "in", "for"}:
            return True
        return (word not in NO_VERBS or not behind or behind in OBJECTS
                or bool(AUXILIARY.fullmatch(behind)) or (at > 1 and words[at - 2] in ONE))
    if word.endswith("ed") and in_clause:  # "which happened", but not "the files read"
        return not AUXILIARY.fullmatch(before) and before not in {"a", "be", "been", "being", "not", "the"}
    return word in PLURALS and before not in BEFORE_BASES


def verbs_of(sentence):
    words = [word.strip(".").lower() for word in re.findall(r"[\w'/.-]+|[,;:]", sentence)]
    count, in_clause = 0, False
    for at, word in enumerate(words):
        in_clause = in_clause or word in OPENS_CLAUSE
        count += is_verb(words, at, in_clause)
    return count


def lacks_verb(sentence):
    """Each clause ("that", "where") needs a verb, and the sentence one more."""
    verbs, clauses = verbs_of(sentence), len(CLAUSE.findall(sentence))
    clauses += len(AND_VERB.findall(sentence)) if clauses else 0
    return not verbs or verbs <= clauses


def problem_of(sentence, first, code):
    """What is wrong with a sentence of a comment above `code`, or nothing."""
    bare = QUOTED.sub("X", sentence)
    if AS_SUBJECT.match(bare):
        return "a clause as the subject"
    if NOBODY.search(bare):
        return "`who` without a person or a program before it"
    if first and LOOSE.match(bare) or LOOSE_LATER.match(bare):
        return "a pronoun without its noun"
    if OWNS_NOTHING.search(bare):
        return "a possessive without its noun"
    if BEHIND_COLON.search(bare):
        return "a pronoun behind a colon"
    if PARTICIPLE.match(bare):
        return "a sentence without a verb"
    if first and CONTINUES.match(bare):
        return "continues a sentence that is not there"
    if short := SHORT.search(bare):
        return f"the abbreviation {short.group(1)}"
    if not re.match(r"[A-Za-z]", bare) or len(bare.split()) < 2 or " = " in bare:
        return None
    lead, colon, rest = bare.partition(": ")
    if colon and not verbs_of(lead) and verbs_of(rest) and len(rest.split()) > 2:
        return "a colon behind words without a verb"
    named = first and DECLARES.match(re.sub(r"\s*//.*", "", code.strip())) and not NO_PHRASE.match(bare)
    main = TAIL.split(bare)[0]
    clipped = main != bare and not verbs_of(main) and not NO_PHRASE.match(main)
    return "a sentence without a verb" if not named and (clipped or lacks_verb(bare)) else None


def phrase_problem(text):
    """What is wrong with a comment behind code, or nothing."""
    bare = QUOTED.sub("X", text)
    if PHRASE.match(bare):
        return "a phrase that does not say what it is about"
    return "`who` without a person or a program before it" if NOBODY.search(bare) else None
