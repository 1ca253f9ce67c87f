"""A directory as what a server can take: its flows by inspection, its files as one bundle.

The server never imports user code. `python -m farhand.sdk.inspection ROOT` does, and tells what it found;
the files it names go into one zip whose digest is the version of the code. The same bytes give the same
bundle on every machine: sorted names, no times, no modes. A flow's own part of those files is its manifest
(name and digest of each, line ends normalised); the manifest's digest is the flow's fingerprint.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import signal
import sys
import zipfile
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from farhand_worker.gitstate import git_state
from farhand_worker.manifest import digest_file, write_manifest

from ..blobs import digest_of
from ..errors import Usage
from ..model import Ask, JobSettings, LeftOut, ServiceSpec, Trouble
from ..sdk.closure import digests_of, version_of
from . import projectfile

INSPECT_S = 60.0
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LINE_MAX = 64 * 1024 * 1024
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Timed:
    """A schedule of a flow, as it was written."""

    spec: dict[str, Any]
    params: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Needed:
    """A service that a flow needs, as it was written."""

    name: str
    spec: ServiceSpec
    ask: Ask = field(default_factory=Ask)
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A flow as inspection found it, with the hash of the files that it reaches."""

    name: str
    entry: str
    description: str
    schema: dict[str, Any]
    ask: Ask
    settings: JobSettings
    file: str
    tags: tuple[str, ...] = ()
    schedules: tuple[Timed, ...] = ()
    fingerprint: str = ""
    git: str = ""
    document: dict[str, Any] | None = None
    services: tuple[Needed, ...] = ()


@dataclass(frozen=True, slots=True)
class Inspection:
    """What the inspecting child tells. ``parts`` and ``versions`` are by file; ``unchanged`` files were not
    imported."""

    flows: list[Found]
    errors: list[Trouble]
    files: list[str]
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])
    parts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    versions: dict[str, str] = field(default_factory=dict[str, str])
    unchanged: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Offer:
    """A project as a server is asked to take it; the bundle's bytes go their own way."""

    bundle: str
    size: int
    files: int
    flows: list[Found]
    errors: list[Trouble] = field(default_factory=list[Trouble])
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])


@dataclass(frozen=True, slots=True)
class Packed:
    """An offer with its bundle, the sizes of the files in it, and the manifests by fingerprint."""

    name: str
    offer: Offer
    content: bytes
    sizes: dict[str, int]
    versions: dict[str, str]
    manifests: dict[str, bytes] = field(default_factory=dict[str, bytes])


class ChangedMeanwhile(Usage):
    """The files of the directory changed while they were read; read it again when they are at rest."""


async def pack(
    root: Path, inspect_s: float = INSPECT_S, before: Packed | None = None
) -> AsyncGenerator[Packed]:
    """The project in ``root``. The last one is final; earlier ones lack modules that import slowly.

    Modules whose files are those of ``before`` are not imported again. Raises `Usage` when the directory
    cannot be inspected at all, and `ChangedMeanwhile` when what was inspected is not what was read; what is
    wrong with single modules is in the offer.
    """
    settings = await asyncio.to_thread(projectfile.read, root)
    failed = {trouble.file for trouble in before.offer.errors} if before else set[str]()
    known = {f: v for f, v in before.versions.items() if f not in failed} if before else {}
    async with aclosing(_inspect(root, settings.include, inspect_s, known)) as inspections:
        async for inspection in inspections:
            unchanged = set(inspection.unchanged)
            kept = [flow for flow in before.offer.flows if flow.file in unchanged] if before else []
            yield await asyncio.to_thread(_packed, root, settings, inspection, kept)


async def pack_whole(root: Path, inspect_s: float = INSPECT_S) -> Packed:
    """The final result of `pack`, tried again when the files change under it. Raises as `pack` does."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(ChangedMeanwhile):
            return [packed async for packed in pack(root, inspect_s)][-1]
    return [packed async for packed in pack(root, inspect_s)][-1]


def _packed(
    root: Path, settings: projectfile.ProjectFile, inspection: Inspection, kept: list[Found]
) -> Packed:
    contents, gone = read_files(root, inspection.files)
    _check_unchanged(root, contents, inspection)
    content, git = bundle(contents), git_state(root)
    digests = {name: digest_file(data) for name, data in contents.items()}
    manifests: dict[str, bytes] = {}
    flows: list[Found] = []
    for flow in sorted([*inspection.flows, *kept], key=lambda flow: (flow.file, flow.name)):
        part = inspection.parts.get(flow.file, inspection.files)
        manifest = write_manifest({name: digests[name] for name in part if name in digests})
        fingerprint = digest_of(manifest)
        manifests[fingerprint] = manifest
        ask = replace(flow.ask, requires_python=settings.requires_python)
        flows.append(replace(flow, ask=ask, fingerprint=fingerprint, git=git))
    offer = Offer(
        digest_of(content), len(content), len(contents), flows, inspection.errors + gone, inspection.left_out
    )
    sizes = {file: len(data) for file, data in contents.items()}
    return Packed(settings.name, offer, content, sizes, inspection.versions, manifests)


def _check_unchanged(root: Path, contents: Mapping[str, bytes], inspection: Inspection) -> None:
    """What goes into the bundle is what was looked at: code of two versions is never offered as one."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    apart = {name for part in inspection.parts.values() for name in part} - set(digests)
    digests |= digests_of(root, apart)  # too much for the bundle
    for file, part in inspection.parts.items():
        if version_of(part, digests) != inspection.versions[file]:
            raise ChangedMeanwhile(f"{root}: what {file} reaches changed while it was read; try again")


def read_files(root: Path, files: Iterable[str]) -> tuple[dict[str, bytes], list[Trouble]]:
    """Name → bytes of the files, and those that cannot be read (any more)."""
    contents: dict[str, bytes] = {}
    troubles: list[Trouble] = []
    for name in files:
        try:
            contents[name] = (root / name).read_bytes()
        except OSError as error:
            troubles.append(Trouble(name, f"cannot be read: {error.strerror}"))
    return contents, troubles


def bundle(contents: Mapping[str, bytes]) -> bytes:
    """The files as one zip that depends on their names and bytes alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(contents):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), contents[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


async def _inspect(
    root: Path, include: Iterable[str], inspect_s: float, known: Mapping[str, str]
) -> AsyncGenerator[Inspection]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "farhand.sdk.inspection",
        str(root),
        cwd=root,
        env={name: value for name, value in os.environ.items() if not name.startswith("FARHAND_")},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_MAX,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    told = 0
    try:
        asked = {"include": list(include), "inspect_s": inspect_s, "known": known}
        process.stdin.write(msgspec.json.encode(asked))
        process.stdin.close()
        async for line in process.stdout:
            yield msgspec.json.decode(line, type=Inspection)
            told += 1
        if await process.wait() != 0 or not told:
            raise Usage(f"{root} could not be inspected; see the lines above")
    except (msgspec.DecodeError, ValueError) as error:
        raise Usage(f"{root} could not be inspected: {error}") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)  # it ends the modules that it is importing, and leaves
        await process.wait()
