"""Conditional changes: ETag, If-Match and If-None-Match (RFC 9110, section 13), as far as flows have them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header
from starlette.exceptions import HTTPException

IfMatch = Annotated[str | None, Header(description="The ETag of what this change is based on.")]
IfNoneMatch = Annotated[str | None, Header(description="`*`: only if there is nothing yet.")]


def quoted(etag: str) -> str:
    """The value of an ETag header."""
    return f'"{etag}"'


def expected_etag(if_match: str | None, if_none_match: str | None = None) -> str | None:
    """What has to be there: an etag, ``*`` for whatever it is, empty for nothing; None for no matter what."""
    if if_none_match is not None:
        if if_none_match.strip() != "*" or if_match is not None:
            raise HTTPException(400, "If-None-Match is understood as *, and without If-Match")
        return ""
    if if_match is None:
        return None
    etag = if_match.strip().removeprefix("W/")
    return etag if etag == "*" else etag.strip('"')
