"""``notify``: hooks that tell somebody how a run ended, by a webhook or by e-mail.

Nothing but the standard library, loaded when there is something to tell. A delivery that the other side did
not take is tried again a few times; what fails for good is the hook's own failure, and is shown as that.
"""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from farhand.errors import FarhandError, Usage

from .hooks import Summary
from .secrets import secret
from .standard import standard_library

_TRIES = 3
_TIMEOUT_S = 10.0
_PAUSE_S = 1.0
_SMTPS = 465
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def notify(
    *,
    webhook: Optional[str] = None,
    webhook_secret: Optional[str] = None,
    email: Union[str, Sequence[str], None] = None,
    smtp: Optional[str] = None,
    sender: Optional[str] = None,
    user: Optional[str] = None,
    password_secret: Optional[str] = None,
) -> Notify:
    """A hook for ``on_failed`` and the like.

    ``webhook``: an address that gets the run as JSON by POST, with a sentence under ``text``;
    ``webhook_secret`` names a secret that holds such an address. ``email``: one or several addressees, by the
    server ``smtp`` (``host`` or ``host:port``), from ``sender``; ``user`` and ``password_secret``, the name
    of a secret, to sign in there. Raises `Usage`.
    """
    ways: List[_Way] = []
    if webhook is not None or webhook_secret is not None:
        ways.append(_Webhook(webhook, webhook_secret))
    if email is not None:
        ways.append(_Email(email, smtp, sender, user, password_secret))
    elif smtp is not None or user is not None or password_secret is not None:
        raise Usage("notify(smtp=…) is for e-mail; say to whom with email=…")
    if not ways:
        raise Usage("notify needs webhook=… or email=… with smtp=…")
    return Notify(ways)


class Notify:
    """The hook that `notify` makes. ``secrets`` are the names of those it reads."""

    def __init__(self, ways: List[_Way]) -> None:
        self._ways = ways
        self.secrets = [name for way in ways for name in way.secrets]

    def __call__(self, summary: Summary) -> None:
        """Tell of a run, every way. Raises `FarhandError` when one of them failed."""
        failures = [failure for failure in (_delivered(way, summary) for way in self._ways) if failure]
        if failures:
            raise FarhandError("; ".join(failures))

    def __str__(self) -> str:
        return f"notify {', '.join(map(str, self._ways))}"


class _Way:
    """One way to tell."""

    secrets: Tuple[str, ...] = ()

    def prepare(self, summary: Summary) -> Callable[[], None]:
        """What delivers the message; it may be called again."""
        raise NotImplementedError


def _delivered(way: _Way, summary: Summary) -> str:
    """Deliver, with retries; the failure in words, or nothing."""
    with standard_library():
        return _told(way.prepare(summary), way)


def _told(deliver: Callable[[], None], way: _Way) -> str:
    for left in range(_TRIES - 1, -1, -1):
        try:
            deliver()
            return ""
        except _Rejected as error:
            return f"{way} did not take it: {error}"
        except OSError as error:  # also what urllib and smtplib raise
            if not left:
                return f"{way} could not be told: {error}"
        time.sleep(_PAUSE_S)
    return ""


class _Rejected(Exception):
    """The other side was reached and does not want it: no use in trying again."""


def sentence(summary: Summary) -> str:
    """A run's end in one line."""
    reason = summary.get("reason") or ""
    why = f" ({reason})" if reason not in ("", summary["state"]) else ""
    message = f": {summary['message']}" if summary.get("message") else ""
    return f"{summary['flow']} {summary['state']}{why}{message} - run {summary['id']}"


class _Webhook(_Way):
    def __init__(self, url: Optional[str], named: Optional[str]) -> None:
        if (url is None) == (named is None):
            raise Usage("give either webhook or webhook_secret")
        if url is not None and not url.startswith(("https://", "http://")):
            raise Usage("webhook must be an address that begins with https:// or http://")
        self._url = url
        self._named = named
        self.secrets = () if named is None else (named,)

    def __str__(self) -> str:
        if self._url is None:
            return f"webhook {self._named}"
        return f"webhook {self._url.partition('://')[2].partition('/')[0].rpartition('@')[2]}"

    def prepare(self, summary: Summary) -> Callable[[], None]:
        from urllib.request import Request  # noqa: PLC0415 - only when there is something to tell

        url = self._url if self._url is not None else secret(str(self._named))
        body = json.dumps({"text": sentence(summary), "run": summary}).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "farhand"}
        request = Request(url, body, headers, method="POST")
        return lambda: self._post(request)

    def _post(self, request: Any) -> None:
        from urllib.error import HTTPError  # noqa: PLC0415
        from urllib.request import urlopen  # noqa: PLC0415

        try:
            with urlopen(request, timeout=_TIMEOUT_S):
                return
        except HTTPError as error:
            status = f"{error.code} {error.reason}"
            error.close()
            if error.code < 500 and error.code != 429:
                raise _Rejected(status) from None
            raise OSError(status) from None


class _Email(_Way):
    def __init__(
        self,
        to: Union[str, Sequence[str]],
        smtp: Optional[str],
        sender: Optional[str],
        user: Optional[str],
        password_secret: Optional[str],
    ) -> None:
        self._to = [to] if isinstance(to, str) else list(to)
        if not self._to or not all(isinstance(name, str) and "@" in name for name in self._to):
            raise Usage("email must be an address, or a list of them")
        self._host, self._port = _server(smtp)
        self._sender = sender
        if (user is None) != (password_secret is None):
            raise Usage("user and password_secret go together")
        self._user = user
        self._password_secret = password_secret
        self.secrets = () if password_secret is None else (password_secret,)

    def __str__(self) -> str:
        return f"e-mail to {', '.join(self._to)}"

    def prepare(self, summary: Summary) -> Callable[[], None]:
        from email.message import EmailMessage  # noqa: PLC0415 - only when there is something to tell

        message = EmailMessage()
        message["Subject"] = " ".join(sentence(summary).split())[:200]
        message["From"] = self._sender or _own_address()
        message["To"] = ", ".join(self._to)
        message.set_content(_letter(summary))
        password = None if self._password_secret is None else secret(self._password_secret)
        return lambda: self._send(message, password)

    def _send(self, message: Any, password: Optional[str]) -> None:
        import smtplib  # noqa: PLC0415 - only when there is something to tell
        import ssl  # noqa: PLC0415

        context = ssl.create_default_context()
        try:
            if self._port == _SMTPS:
                server: smtplib.SMTP = smtplib.SMTP_SSL(
                    self._host, self._port, timeout=_TIMEOUT_S, context=context
                )
            else:
                server = smtplib.SMTP(self._host, self._port, timeout=_TIMEOUT_S)
            with server:
                server.ehlo()
                if server.has_extn("starttls"):
                    server.starttls(context=context)
                    server.ehlo()
                if self._user is not None and password is not None:
                    self._sign_in(server, self._user, password)
                server.send_message(message)
        except (smtplib.SMTPAuthenticationError, smtplib.SMTPRecipientsRefused) as error:
            raise _Rejected(str(error)) from None

    def _sign_in(self, server: Any, user: str, password: str) -> None:
        from ssl import SSLSocket  # noqa: PLC0415 - only when there is something to tell

        if not isinstance(server.sock, SSLSocket) and self._host not in _THIS_MACHINE:
            raise _Rejected("it offers no TLS, and the password is not sent without")
        server.login(user, password)


def _server(smtp: Optional[str]) -> Tuple[str, int]:
    host, colon, port = (smtp or "").partition(":")
    if not host or (colon and not port.isdigit()):
        raise Usage("email needs smtp='host' or smtp='host:port', the server that takes the mail")
    return host, int(port) if port else 25


def _own_address() -> str:
    import socket  # noqa: PLC0415 - only when there is something to tell

    return f"farhand@{socket.gethostname()}"


def _letter(summary: Summary) -> str:
    lines = [sentence(summary), ""]
    shown: Dict[str, Any] = {"run": summary["id"], "flow": summary["flow"], "worker": summary.get("worker")}
    shown["parameters"] = json.dumps(summary.get("params"), ensure_ascii=False)
    lines += [f"{name}: {value}" for name, value in shown.items() if value is not None]
    error = summary.get("error")
    if error and error.get("traceback"):
        lines += ["", str(error["traceback"])]
    return "\n".join(lines) + "\n"
