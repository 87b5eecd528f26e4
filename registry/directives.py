"""Labels that look like a misspelt directive for Prometheus, `prometheus:SERVICE[:KEY:VALUE]`."""

import re
from difflib import SequenceMatcher

WORD = "prometheus"
KEYS = ("host", "port")
# Nothing else looks like the word.
ALIKE = 0.85
_HEAD = re.compile(r"\s*([^\s:=@]{8,12})\s*(?:[:=]\s*(.*))?", re.DOTALL)


def misspelt(label: str) -> str | None:
    """Return what is probably wrong with a label, and which one may be meant; None if nothing."""
    if not label.startswith(f"{WORD}:"):
        return _of_word(label)
    service, colon, setting = label[len(WORD) + 1 :].partition(":")
    key, has_value, value = setting.partition(":")
    if not service.partition("@")[0]:
        return f"it names no service; a directive is {WORD}:SERVICE"
    if colon and not has_value:
        meant = f"{WORD}:{service}:port:{key}" if key.isdecimal() else f"{WORD}:{service}:KEY:VALUE"
        return f"it has no value, and is ignored; did you mean {meant}?"
    for word in KEYS:
        if key != word and _is_slip(key.strip().lower(), word):
            return f"did you mean {WORD}:{service}:{word}:{value}?"
    return None


def _of_word(label: str) -> str | None:
    found = _HEAD.fullmatch(label)
    if found is None:
        return None
    word = found[1].lower()
    if word != WORD and SequenceMatcher(None, word, WORD).ratio() < ALIKE:
        return None
    if not found[2]:
        return f"it names no service; a directive is {WORD}:SERVICE"
    return f"it is no directive; did you mean {WORD}:{found[2]}?"


def _is_slip(key: str, word: str) -> bool:
    """Return whether a key is a word with letters swapped, or with one too many or too few.

    Another letter makes other words, such as `post` and `sort`.
    """
    if abs(len(key) - len(word)) > 1:
        return False
    if sorted(key) == sorted(word):
        return True
    longer, shorter = (key, word) if len(key) > len(word) else (word, key)
    return shorter in {longer[:at] + longer[at + 1 :] for at in range(len(longer))}
