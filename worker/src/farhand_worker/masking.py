"""Keeps secrets out of whatever is written: logs, tracebacks, results and the output of child processes.

A `Masker` knows the values a job has been given and finds them as they are, escaped as JSON or Python
would, in base64 at any alignment, in hexadecimal and as part of a URL. It exists only once a secret has
been read, so nothing else pays for it. Whoever cuts a text in pieces masks before the cut, and holds back
what `unfinished` says may be the beginning of a secret.

Standard library and Python 3.9: engines and agents alike use it.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Iterator, List, Set
from urllib.parse import quote, quote_plus

MASK = "•••"

SHORTEST = 4
"""Shorter values are not masked: they are found everywhere, and hiding them would hide the log."""


_BASE64_SHORTEST = 6


class Masker:
    """Replaces every known value by `MASK`. Values are added as a job reads them."""

    def __init__(self) -> None:
        self._values: Set[str] = set()
        self._forms: List[str] = []
        self._pattern = re.compile(r"(?!)")

    def add(self, value: str) -> bool:
        """Mask ``value`` from now on; false when it is too short for that."""
        if len(value) < SHORTEST:
            return False
        if value not in self._values:
            self._values.add(value)
            self._forms = sorted({*self._forms, *forms(value)}, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, self._forms)))
        return True

    def __call__(self, text: str) -> str:
        """``text`` with every value masked."""
        return self._pattern.sub(MASK, text)

    def finds(self, text: str) -> bool:
        """Whether ``text`` holds a value."""
        return self._pattern.search(text) is not None

    def unfinished(self, text: str) -> int:
        """How many characters at the end of ``text`` may be the beginning of a value."""
        longest = min(len(text), len(self._forms[0]) - 1) if self._forms else 0
        for size in range(longest, 0, -1):
            tail = text[-size:]
            if any(form.startswith(tail) for form in self._forms):
                return size
        return 0


def forms(value: str) -> Set[str]:
    """The ways in which ``value`` may be written."""
    found = {value, *_lines(value)}
    for plain in list(found):
        found.update(_escaped(plain))
        content = plain.encode("utf-8", "surrogatepass")
        found.update(_base64(content))
        found.update((content.hex(), content.hex().upper()))
        found.update(_in_urls(content))
    return {form for form in found if len(form) >= SHORTEST}


def _lines(value: str) -> Iterator[str]:
    """The lines of a value that has several, as a log would show them; short ones give nothing away."""
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= 2 * SHORTEST)


_IN_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
"""What `html.escape` makes of text, without the table of two thousand names that comes with it."""


def _escaped(value: str) -> Iterator[str]:
    """As text in JSON, in JSON inside of JSON, in the representation of Python, and in HTML."""
    yield value.translate(_IN_HTML)
    for ascii_only in (True, False):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield json.dumps(once)[1:-1]
    yield repr(value)[1:-1]
    yield json.dumps(repr(value)[1:-1])[1:-1]


def _base64(content: bytes) -> Iterator[str]:
    """The characters that are certain, for each of the three places at which ``content`` may begin."""
    for before in range(3):
        bits_before, bits_after = 8 * before, 8 * (before + len(content))
        first, last = -(-bits_before // 6), bits_after // 6
        padded = b"\0" * before + content + b"\0" * 3
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(padded).decode("ascii")[first:last]
            if len(text) >= _BASE64_SHORTEST:
                yield text


def _in_urls(content: bytes) -> Iterator[str]:
    for text in (quote(content), quote(content, safe=""), quote_plus(content)):
        yield text
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), text)
