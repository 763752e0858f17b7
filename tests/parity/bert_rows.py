"""Arrays of examples for BERT, for suites with torch and without."""

import numpy as np

VOCABULARY = 331


def make_examples(rows, length, predictions, seed=0, whole=False):
    """Arrays of a shard as NVIDIA's recipe has them; rows are of all lengths, or whole."""
    rng = np.random.default_rng(seed)
    lengths = np.full(rows, length) if whole else rng.integers(length // 2, length + 1, rows)
    skewed = 1.0 / np.arange(1, VOCABULARY - 4)  # something to learn
    ids = rng.choice(np.arange(5, VOCABULARY), (rows, length), p=skewed / skewed.sum())
    places = np.arange(length)[None, :]
    mask = places < lengths[:, None]
    arrays = {
        "input_ids": np.where(mask, ids, 0), "input_mask": mask,
        "segment_ids": np.where(mask, places >= rng.integers(3, length // 2, (rows, 1)), 0),
        "masked_lm_positions": np.zeros((rows, predictions), np.int64),
        "masked_lm_ids": np.zeros((rows, predictions), np.int64),
        "next_sentence_labels": rng.integers(0, 2, rows)}
    for row in range(rows):
        count = predictions if whole else rng.integers(1, predictions + 1)
        chosen = np.sort(rng.choice(np.arange(1, lengths[row]), count, replace=False))
        arrays["masked_lm_positions"][row, :count] = chosen
        arrays["masked_lm_ids"][row, :count] = ids[row, chosen]
        arrays["input_ids"][row, chosen] = 4
    kinds = {"input_ids": "i4", "masked_lm_positions": "i4", "masked_lm_ids": "i4"}
    return {name: values.astype(kinds.get(name, "i1")) for name, values in arrays.items()}
