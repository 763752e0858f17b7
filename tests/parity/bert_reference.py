"""A plain second version of BERT's published recipe for pretraining examples, for comparing
distributions: written from its description, one example after the other, with Python's random
numbers. Tokens are any values; special ones are the strings below."""

import random

CLS, SEP, MASK = "[CLS]", "[SEP]", "[MASK]"


def trim(first, second, most, rng):
    """Takes tokens off either end of the longer text until both fit."""
    while len(first) + len(second) > most:
        longer = first if len(first) > len(second) else second
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


def mask(tokens, share, most, vocabulary, rng):
    """Returns the chosen places, and how each was treated."""
    places = [i for i, token in enumerate(tokens) if token not in (CLS, SEP)]
    rng.shuffle(places)
    count = min(most, max(1, round(len(tokens) * share)))
    chosen = []
    for place in sorted(places[:count]):
        draw = rng.random()
        if draw < 0.8:
            kind, tokens[place] = "masked", MASK
        elif rng.random() < 0.5:
            kind = "kept"
        else:
            kind, tokens[place] = "replaced", rng.choice(vocabulary)
        chosen.append((place, kind))
    return chosen


def examples_of(documents, index, length, predictions, short_share, vocabulary, rng):
    """The examples of one document: (tokens, tokens of the first text, random next, chosen)."""
    room = length - 3
    target = rng.randint(2, room) if rng.random() < short_share else room
    sentences = documents[index]
    at = 0
    while at < len(sentences):
        chunk, size = [], 0
        while at < len(sentences) and size < target:
            chunk.append(sentences[at])
            size += len(sentences[at])
            at += 1
        cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
        first = [token for sentence in chunk[:cut] for token in sentence]
        elsewhere = len(chunk) == 1 or rng.random() < 0.5
        second = []
        if elsewhere:
            other = index
            while other == index:
                other = rng.randrange(len(documents))
            begin = rng.randrange(len(documents[other]))
            for sentence in documents[other][begin:]:
                second += sentence
                if len(second) >= target - len(first):
                    break
            at -= len(chunk) - cut
        else:
            second = [token for sentence in chunk[cut:] for token in sentence]
        trim(first, second, room, rng)
        tokens = [CLS, *first, SEP, *second, SEP]
        yield tokens, len(first), elsewhere, mask(tokens, 0.15, predictions, vocabulary, rng)


def make(documents, length, predictions, passes, short_share=0.1, seed=1):
    rng = random.Random(seed)
    vocabulary = sorted({token for document in documents for sentence in document
                         for token in sentence})
    return [example for _ in range(passes) for index in range(len(documents))
            for example in examples_of(documents, index, length, predictions, short_share,
                                       vocabulary, rng)]
