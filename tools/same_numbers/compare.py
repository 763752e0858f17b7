"""Two records of a case: which number differs first, and what else moved."""

from record import NUMBERS

# What a person is to see; all but the first count as not the same.
VERDICTS = {"same": "same", "figures": "FIGURES", "differs": "DIFFERS", "failed": "FAILED",
            "absent": "ABSENT", "redefined": "OTHER CASE"}


def relative(old, new):
    """|new - old| / |old|; None where that is no number."""
    try:
        before, after = float(old), float(new)
        result = abs(after - before) / abs(before)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return result if result == result else None


def place(point):
    text = f"step {point['step']}"
    if point["of"] != "training":
        text = f"{point['of']}, {text}"
    return text if point["attempt"] == "1" else f"{text} of attempt {point['attempt']}"


def first_number(old, new):
    """The first number of two runs that differs: where, which, both values."""
    for before, after in zip(old, new):
        where = place(before)
        if place(after) != where:
            return {"where": where, "number": "record", "old": where, "new": place(after),
                    "relative": None}
        for name in NUMBERS:
            values = before.get(name), after.get(name)
            if values[0] != values[1]:
                return {"where": where, "number": name, "old": values[0], "new": values[1],
                        "relative": relative(*values)}
    if len(old) == len(new):
        return None
    longer = max(old, new, key=len)
    return {"where": place(longer[min(len(old), len(new))]), "number": "record",
            "old": f"{len(old)} records", "new": f"{len(new)} records", "relative": None}


def changed_keys(old, new):
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def compare(old, new):
    """What two records of a case, or None where there is none, have to say of each other."""
    sides = {"old": old, "new": new}
    absent = [side for side, record in sides.items() if record is None]
    if absent:
        return {"verdict": "absent", "why": f"not recorded in {' and '.join(absent)}"}
    failed = [f"{side}: {record['failed']}" for side, record in sides.items()
              if "failed" in record]
    if failed:
        return {"verdict": "failed", "why": "; ".join(failed)}
    if old["definition"] != new["definition"]:
        return {"verdict": "redefined",
                "why": "its settings are not those it was recorded with: record it again"}
    first = first_number(old["points"], new["points"])
    tensors = changed_keys(old["tensors"], new["tensors"])
    figures = [{"name": name, "old": old["figures"].get(name), "new": new["figures"].get(name)}
               for name in changed_keys(old["figures"], new["figures"])]
    verdict = "differs" if first or tensors else "figures" if figures else "same"
    return {"verdict": verdict, "first": first, "tensors": tensors,
            "tensors_in_all": len(old["tensors"].keys() | new["tensors"].keys()),
            "figures": figures}


def words_of(result):
    """One line for a person."""
    if "why" in result:
        return result["why"]
    parts, first = [], result["first"]
    if first:
        text = f"{first['where']} {first['number']} {first['old']} -> {first['new']}"
        if first["relative"] is not None:
            text += f" (relative {first['relative']:.1e})"
        parts.append(text)
    if result["tensors"]:
        parts.append(f"{len(result['tensors'])} of {result['tensors_in_all']} tensors, first "
                     f"{result['tensors'][0]}")
    elif first:
        parts.append("no tensor")
    if result["figures"]:
        if not parts:
            parts.append("numbers are the same")
        parts += [f"{f['name']}: {f['old']} -> {f['new']}" for f in result["figures"]]
    return "; ".join(parts)
