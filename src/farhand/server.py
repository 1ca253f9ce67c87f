"""The composition root: everything is wired here and nowhere else.

`Server(config).run()` serves until it is told to stop.

Start: own the home, open the store, build the services, listen (the moment from which absent workers are
counted), start the loops, then the local worker; the HTTP API and the console are loaded meanwhile.
Stop: hand nothing over any more, end the local worker with grace while the gateway still listens to its last
reports, then the loops, the sockets and the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import logging
import math
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from farhand_worker import protocol
from farhand_worker.descriptors import make_room

from .config import Config, shown
from .engine.doctor import SettingShown
from .engine.keys import write_private
from .engine.masking import Masker
from .engine.packing import Packed
from .engine.services import Services
from .engine.watcher import Watcher
from .errors import Usage
from .frames import FrameProtocol
from .gateway.endpoint import ATTACH_PATH, Endpoint
from .gateway.local import LocalWorker
from .gathering import GatheringProtocol
from .model import LOCAL_WORKER
from .provision.carrier import Home
from .provision.certificate import ensure
from .provision.provisioning import Provisioning
from .store import Store
from .tls import Certificate, read_certificate
from .web.front import Front
from .web.settings import WebSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger("farhand")


class _Http(uvicorn.Server):
    """uvicorn without its signal handlers: this server decides what ends it."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[override]
        yield


class Server:
    """One farhand server on one home."""

    def __init__(self, config: Config, say: Callable[[str], None] = lambda _: None) -> None:
        self._config = config
        self._say = say
        self._stopping = asyncio.Event()
        self._failure: str | None = None
        self._files: tuple[int, int] | None = None

    def run(self) -> int:
        """Serve until SIGTERM, Ctrl-C or `farhand stop`; returns the exit code."""
        self._files = make_room()  # each worker, each open page and each transfer is a connection
        return asyncio.run(self.serve())

    def stop(self) -> None:
        """Begin an orderly stop."""
        self._stopping.set()

    async def serve(self) -> int:
        """Start, wait to be stopped, and close in order."""
        home = self._config.home
        prepare(home)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        store = await Store.open(
            home / "farhand.db",
            on_death=self._on_store_death,
            url=self._config.database,
            without_backup=self._config.migrate_without_backup,
        )
        try:
            await self._serve_store(store)
        finally:
            await store.close()
        if self._failure:
            log.critical("%s", self._failure)
            return 1
        return 0

    async def _serve_store(self, store: Store) -> None:
        config = self._config
        services = self._services(store)
        certificate = read_certificate(config.tls_cert, config.tls_key)
        listener = bind(config.host, config.port)
        host, port = listener.getsockname()[:2]
        settings = self._web_settings(port, certificate)
        front = Front(settings, ATTACH_PATH, self._endpoint(services))
        http = _Http(_uvicorn_config(front, config.trusted_proxy, certificate))
        serving = asyncio.create_task(http.serve(sockets=[listener]), name="http")
        local = self._local_worker(services, port, certificate)
        watcher = Watcher(services.projects, config.root, config.inspect_s) if config.root else None
        services.lookout.directory = watcher
        provisioning = self._provisioning(services, settings, certificate)
        try:
            await services.start()
            local.start()
            address = f"{_scheme(certificate)}://{dialled(host)}:{port}{config.base_path}"
            _write_address(config.home, address, settings.pin)
            if watcher is not None:
                watcher.start()
            begin = self._become_ready(services, watcher, provisioning, front, address)
            await self._until_stopped(serving, begin)
        finally:
            services.dispatcher.hold_back()
            await provisioning.close()
            if watcher is not None:
                await watcher.stop()
            await local.end()
            await services.stop()
            http.should_exit = True
            http.force_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            (config.home / "server.json").unlink(missing_ok=True)

    def _services(self, store: Store) -> Services:
        config = self._config
        services = Services(
            store,
            config.home,
            config.times,
            keep_s=config.keep,
            keep_audit_s=config.keep_audit,
            reserve_after_s=config.reserve_after_s,
            import_timeout_s=config.import_timeout_s,
            import_again_s=config.import_again_s,
        )
        services.doctor.settings = [SettingShown(*row) for row in shown(config)]
        mask_logs(services.masker)
        services.limits = {
            "engine_memory_bytes": config.engine_memory,
            "spool_bytes": config.spool_limit,
            "import_s": math.ceil(config.import_timeout_s),
        }
        return services

    def _provisioning(
        self, services: Services, settings: WebSettings, certificate: Certificate | None
    ) -> Provisioning:
        home = self._config.home
        return Provisioning(
            services.machines,
            self._config.root or home,
            home,
            settings.url,
            settings.pin,
            lambda: self._behind_relays(settings, certificate, services.store.meta.incarnation()),
            forget=services.operations.forget,
        )

    def _tell(self, root: Path | None, packed: Packed | None) -> None:
        found = packed.offer.flows if packed else []
        names = ", ".join(sorted({flow.name for flow in found})) or "no flow"
        self._say(f"{root} has {names}")

    async def _become_ready(
        self,
        services: Services,
        watcher: Watcher | None,
        provisioning: Provisioning,
        front: Front,
        address: str,
    ) -> None:
        """Load the application, wait for the first look at the project, then say that everything is there."""
        app = await asyncio.to_thread(_application, services, front.settings)
        front.open(app)
        if not gc.isenabled():  # the command has it rest while all this is loaded, which stays
            gc.freeze()
            gc.enable()
        if watcher is not None:
            self._tell(self._config.root, await watcher.ready())
        services.scheduler.start()
        await provisioning.open()
        provisioning.start()
        services.ready = True
        self._say(f"farhand serves on {address}")
        self._say(f"sign in: {address}/{app.state.sessions.link()}")

    async def _until_stopped(self, serving: asyncio.Task[None], begin: Coroutine[Any, Any, None]) -> None:
        """Finish the start and serve. A stop is obeyed in either."""
        beginning = asyncio.create_task(begin)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({stopping, serving, beginning}, return_when=asyncio.FIRST_COMPLETED)
            if beginning.done():
                beginning.result()
                await asyncio.wait({stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            beginning.cancel()
            await asyncio.gather(stopping, beginning, return_exceptions=True)

    def _on_store_death(self, error: BaseException) -> None:
        self._failure = f"the store's writer ended, nothing can be recorded any more: {error!r}"
        self._stopping.set()

    def _web_settings(self, port: int, certificate: Certificate | None) -> WebSettings:
        config = self._config
        hosts = tuple(host for host in (config.public_host,) if host)
        return WebSettings(
            host=config.host,
            port=port,
            url_hosts=hosts,
            base_path=config.base_path,
            session_key=_session_key(config.home / "session-key"),
            secure=certificate is not None,
            url=public_url(config, port, certificate),
            pin=certificate.pin if certificate else "",
            services_host=config.services_host,
            service_answer_s=config.service_answer_s,
        )

    def _behind_relays(self, settings: WebSettings, certificate: Certificate | None, store: str) -> Home:
        """How workers that come by ssh find this server; it goes by the names of their relays then."""
        config = self._config
        tls, pin = (None, certificate.pin) if certificate else ensure(config.home)

        def admit(url: str) -> None:
            settings.relay_hosts.add(urlsplit(url).hostname or "")

        host = dialled(config.host).strip("[]")
        return Home(host, settings.port, config.base_path, store[:8], pin, tls, admit)

    def _endpoint(self, services: Services) -> Endpoint:
        """What follows from a commit goes to the workers once all who wait for it are answered."""
        services.store.database.answer_within(services.turn)
        return Endpoint(services)

    def _local_worker(self, services: Services, port: int, certificate: Certificate | None) -> LocalWorker:
        config = self._config
        url = f"{_scheme(certificate)}://127.0.0.1:{port}{config.base_path}"
        return LocalWorker(
            config.home,
            url,
            services.tokens.local,
            config.parallel,
            config.root,
            config.times,
            services.fleet,
            services.operations.dismiss_local,
            partial(services.operations.set_slots, LOCAL_WORKER),
            certificate.pin if certificate else "",
            self._files,
        )


def _application(services: Services, settings: WebSettings) -> FastAPI:
    """The API and the console; importing them takes a third of a start."""
    from .web.app import create_app  # noqa: PLC0415 - on this thread, while the rest starts

    return create_app(services, settings)


def prepare(home: Path) -> None:
    """Make the home where it is missing. Raises `Usage` when nothing can be kept there."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = "" if os.access(home, os.W_OK | os.X_OK) else "Permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise Usage(f"the home {home} cannot be written: {reason}; choose another with --home")


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises `Usage` naming the address that cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's algorithm off only where it is: without it every
    # answer on a session waits 40 ms for the peer's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        option = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise Usage(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with {option}"
        ) from error
    listener.setblocking(False)
    return listener


def dialled(host: str) -> str:
    """The address by which this machine reaches what listens on ``host``."""
    if host in ("0.0.0.0", "::", ""):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def public_url(config: Config, port: int, certificate: Certificate | None) -> str:
    """The address that other machines are told: a proxy's where one is trusted, else this server's own."""
    if config.public_host and config.trusted_proxy and certificate is None:
        return f"https://{config.public_host}{config.base_path}"
    everywhere = config.host in ("0.0.0.0", "::", "")
    host = config.public_host or (socket.gethostname() if everywhere else dialled(config.host))
    return f"{_scheme(certificate)}://{host}:{port}{config.base_path}"


def _scheme(certificate: Certificate | None) -> str:
    return "https" if certificate else "http"


def _uvicorn_config(
    app: ASGIApp, trusted_proxy: tuple[str, ...], certificate: Certificate | None
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=GatheringProtocol,
        ws=FrameProtocol,
        ws_max_size=protocol.FRAME_BYTES_MAX,
        ws_ping_interval=None,
        ws_per_message_deflate=False,
        proxy_headers=bool(trusted_proxy),
        forwarded_allow_ips=list(trusted_proxy),
        access_log=False,
        log_config=None,
        lifespan="off",
        ssl_certfile=certificate.certificate if certificate else None,
        ssl_keyfile=certificate.key if certificate else None,
    )


def _session_key(path: Path) -> bytes:
    """The key of the console's cookies, kept so that a restart signs nobody out."""
    if not path.exists():
        write_private(path, secrets.token_bytes(32))
    return path.read_bytes()


def _write_address(home: Path, url: str, pin: str) -> None:
    """Tell the CLI on this machine where the server is, and by which certificate it is known."""
    told = {"url": url, "pin": pin, "pid": os.getpid(), "started_at": time.time()}
    write_private(home / "server.json", json.dumps(told).encode())


class _Masked(logging.Formatter):
    """Another formatter's lines without the secrets that the server knows."""

    def __init__(self, inner: logging.Formatter, masker: Masker) -> None:
        super().__init__()
        self.inner = inner
        self._masker = masker

    def format(self, record: logging.LogRecord) -> str:
        return self._masker(self.inner.format(record))


def mask_logs(masker: Masker) -> None:
    """Whatever the root's handlers write is masked from now on."""
    for handler in logging.getLogger().handlers:
        inner = handler.formatter or logging.Formatter()
        handler.setFormatter(_Masked(inner.inner if isinstance(inner, _Masked) else inner, masker))
