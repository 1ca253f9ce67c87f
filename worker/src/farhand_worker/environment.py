"""The environment of user code: the worker's own, less what looks like a credential."""

from __future__ import annotations

import fnmatch
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .machine import CUDA_MASK, ENGINE_ID_VARIABLE

CREDENTIALS = (
    "*TOKEN*",
    "*SECRET*",
    "*PASSWORD*",
    "*PASSWD*",
    "*_KEY",
    "*CREDENTIAL*",
    "DATABASE_URL*",
    "*_DSN",
    "SSH_AUTH_SOCK",
    "KUBECONFIG",
)
"""Names that look like credentials."""

HARMLESS = ("TOKENIZERS_PARALLELISM", "*_MAX_TOKENS", "*_TOKENS_MAX", "*TOKENIZER*")
"""Names that only look like them."""

THREAD_CAPS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""What numeric libraries read, when they are loaded, to know how many threads to start."""

_OWN = "FARHAND_*"


def user_environment(
    environ: Mapping[str, str], passed: Iterable[str] = ()
) -> Tuple[Dict[str, str], List[str]]:
    """What user code gets of ``environ``, and the sorted names it does not get.

    The names in ``passed`` it gets whatever they look like; those of farhand's own never.
    """
    allowed = frozenset(passed)
    kept: Dict[str, str] = {}
    withheld: List[str] = []
    for name, value in environ.items():
        if _matches(name, (_OWN,)):
            continue
        if _matches(name, CREDENTIALS) and not (_matches(name, HARMLESS) or name in allowed):
            withheld.append(name)
        else:
            kept[name] = value
    return kept, sorted(withheld)


def engine_environment(
    base: Mapping[str, str],
    engine: str,
    cpus: Optional[int] = None,
    devices: Optional[Sequence[str]] = None,
) -> Dict[str, str]:
    """``base`` with what every engine gets: its id, and output that is not held back.

    ``cpus`` caps the threads of numeric libraries, ``devices`` are the GPUs that are seen (none: none of
    them); None leaves either as it is.
    """
    environ = {**base, ENGINE_ID_VARIABLE: engine, "PYTHONUNBUFFERED": "1"}
    if cpus is not None:
        environ.update(dict.fromkeys(THREAD_CAPS, str(cpus)))
    if devices is not None:
        environ[CUDA_MASK] = ",".join(devices)
    return environ


def _matches(name: str, patterns: Tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name.upper(), pattern) for pattern in patterns)
