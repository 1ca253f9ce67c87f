"""``farhand serve``: the server."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import click

from .options import home_option
from .program import finish


@click.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--host", metavar="ADDRESS", help="The address to listen on; 127.0.0.1 by default.")
@click.option(
    "--port", type=int, metavar="PORT", help="The port to listen on; 8420 by default, 0 for a free one."
)
@click.option(
    "--parallel",
    "--processors",
    "parallel",
    type=int,
    metavar="N",
    help="Slots of the server's own processors, 0 for none; one a core by default.",
)
@click.option("--base-path", metavar="PATH", help="The path under which a proxy publishes the server.")
@click.option("--public-host", "--url-host", metavar="NAME", help="Another name the server may be called by.")
@click.option(
    "--trusted-proxy", metavar="ADDRESSES", help="Proxies whose forwarded headers are believed, by comma."
)
@click.option("--tls-cert", metavar="FILE", help="Speak TLS with this certificate (and its chain), in PEM.")
@click.option("--tls-key", metavar="FILE", help="The key of the certificate, in PEM.")
@home_option
@click.option(
    "--database",
    metavar="URL",
    help="A PostgreSQL database for the store, postgresql://user@host/name; SQLite in the home by default.",
)
@click.option(
    "--migrate-without-backup",
    is_flag=True,
    help="Upgrade a store of an older version without a copy of it first.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="How to log to stderr: text, or an object a line.",
)
@click.option("--no-open", is_flag=True, help="Do not open the console in a browser.")
def serve(
    directory: Path | None,
    host: str | None,
    port: int | None,
    parallel: int | None,
    base_path: str | None,
    public_host: str | None,
    trusted_proxy: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    home: Path | None,
    database: str | None,
    migrate_without_backup: bool,
    log_format: str | None,
    no_open: bool,
) -> None:
    """Run the server.

    DIRECTORY holds the flows it offers. The console's address is printed as a link that signs in once.
    """
    gc.disable()  # what is loaded stays; the server turns it on once it is all there
    from .. import config
    from ..logs import configure_logging
    from ..server import Server

    flags = {
        "host": host,
        "port": port,
        "parallel": parallel,
        "base_path": base_path,
        "public_host": public_host,
        "trusted_proxy": trusted_proxy,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "home": home,
        "database": database,
        "migrate_without_backup": migrate_without_backup or None,
        "log_format": log_format,
    }
    root = None if directory is None else directory.absolute()
    settings = config.load(flags, root=root)
    configure_logging(settings.log_format)
    opens = not no_open and _has_browser()

    def say(line: str) -> None:
        click.echo(line)
        if opens and line.startswith("sign in: "):
            import webbrowser

            webbrowser.open(line.removeprefix("sign in: "))

    finish(Server(settings, say).run())


def _has_browser() -> bool:
    """Whether somebody sits in front of this machine's screen."""
    if not sys.stdout.isatty() or "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
