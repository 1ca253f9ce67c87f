"""Reads ``farhand.toml``. Python 3.11 brings a reader of TOML; for older ones a strict one of most is here.

The one here reads tables, keys, texts on one line, numbers, booleans, arrays and inline tables, which is
all that the documented keys need. What it does not read (texts over several lines, dates) it refuses by
line; it never guesses.
"""

from __future__ import annotations

import importlib
import json
import re
from typing import Any, Dict, List

_SPACE = re.compile(r"[ \t]*(?:#[^\n]*)?")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL = re.compile(r"'[^'\n]*'")
_WORD = re.compile(r"[^\s,\]}#=]+")
_INTEGER = re.compile(r"[+-]?\d+(?:_\d+)*")
_FLOAT = re.compile(r"[+-]?\d+(?:_\d+)*(?:\.\d+(?:_\d+)*)?(?:[eE][+-]?\d+)?")


def tables(text: str) -> Dict[str, Any]:
    """The tables of a file of settings. Raises `ValueError` naming the line."""
    try:
        library = importlib.import_module("tomllib")
    except ImportError:
        return read(text)
    return library.loads(text)


def read(text: str) -> Dict[str, Any]:
    """The same by the reader of this module."""
    return _Reader(text.replace("\r\n", "\n")).tables()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def tables(self) -> Dict[str, Any]:
        root: Dict[str, Any] = {}
        here = root
        while self._skip(_BLANK):
            if self._take("[["):
                here = self._element(root, self._keys())
                self._need("]]")
            elif self._take("["):
                here = self._table(root, self._keys())
                self._need("]")
            else:
                self._pair(here)
            self._skip(_SPACE)
            if self._at < len(self._text):
                self._need("\n")
        return root

    def _pair(self, table: Dict[str, Any]) -> None:
        keys = self._keys()
        self._need("=")
        self._skip(_SPACE)
        inner = self._table(table, keys[:-1])
        if keys[-1] in inner:
            raise self._wrong(f"{keys[-1]} is there twice")
        inner[keys[-1]] = self._value()

    def _table(self, table: Dict[str, Any], keys: List[str]) -> Dict[str, Any]:
        for key in keys:
            inner: Any = table.setdefault(key, {})
            if isinstance(inner, list) and inner:
                inner = inner[-1]
            if not isinstance(inner, dict):
                raise self._wrong(f"{key} is no table")
            table = inner
        return table

    def _element(self, table: Dict[str, Any], keys: List[str]) -> Dict[str, Any]:
        array = self._table(table, keys[:-1]).setdefault(keys[-1], [])
        if not isinstance(array, list):
            raise self._wrong(f"{keys[-1]} is no array of tables")
        element: Dict[str, Any] = {}
        array.append(element)
        return element

    def _keys(self) -> List[str]:
        keys: List[str] = []
        while not keys or self._take("."):
            self._skip(_SPACE)
            bare = _BARE.match(self._text, self._at)
            if bare is not None:
                self._at = bare.end()
                keys.append(bare[0])
            else:
                keys.append(self._quoted())
            self._skip(_SPACE)
        return keys

    def _value(self) -> Any:
        opening = self._text[self._at : self._at + 1]
        if opening == "[":
            return self._array()
        if opening == "{":
            return self._inline()
        if opening in ('"', "'"):
            return self._quoted()
        return self._plain()

    def _array(self) -> List[Any]:
        self._need("[")
        values: List[Any] = []
        while self._skip(_BLANK) and not self._take("]"):
            values.append(self._value())
            self._skip(_BLANK)
            if not self._take(","):
                self._need("]")
                break
        return values

    def _inline(self) -> Dict[str, Any]:
        self._need("{")
        table: Dict[str, Any] = {}
        self._skip(_SPACE)
        if self._take("}"):
            return table
        while True:
            self._pair(table)
            self._skip(_SPACE)
            if not self._take(","):
                self._need("}")
                return table

    def _quoted(self) -> str:
        if self._text.startswith(('"""', "'''"), self._at):
            raise self._wrong("text over several lines; here it takes Python 3.11 or later to read that")
        for pattern in (_BASIC, _LITERAL):
            match = pattern.match(self._text, self._at)
            if match is not None:
                self._at = match.end()
                return self._unescaped(match[0]) if pattern is _BASIC else match[0][1:-1]
        raise self._wrong("a name or a text in quotes is expected")

    def _unescaped(self, quoted: str) -> str:
        try:
            return str(json.loads(quoted, strict=False))
        except ValueError:
            raise self._wrong(f"{quoted} has an escape that is not read here") from None

    def _plain(self) -> Any:
        match = _WORD.match(self._text, self._at)
        word = match[0] if match else ""
        if word in ("true", "false"):
            value: Any = word == "true"
        elif _INTEGER.fullmatch(word):
            value = int(word.replace("_", ""))
        elif _FLOAT.fullmatch(word):
            value = float(word.replace("_", ""))
        else:
            raise self._wrong(f"{word or 'nothing'} is no value that is read here")
        self._at += len(word)
        return value

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        """Skip what ``pattern`` matches; whether anything is left."""
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at < len(self._text)

    def _take(self, mark: str) -> bool:
        found = self._text.startswith(mark, self._at)
        self._at += len(mark) * found
        return found

    def _need(self, mark: str) -> None:
        if not self._take(mark):
            said = "the end of the line" if mark == "\n" else mark
            raise self._wrong(f"{said} is expected")

    def _wrong(self, why: str) -> ValueError:
        return ValueError(f"{why} (line {self._text.count(chr(10), 0, self._at) + 1})")
