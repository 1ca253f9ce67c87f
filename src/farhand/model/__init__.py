"""The records of section "Words": frozen, and the same type from the store to a template.

Moments (``*_at``) are seconds since the epoch, UTC. Values and errors are the encoded forms of
`farhand_worker.protocol` (dicts that the server passes on and never opens).
"""

from __future__ import annotations

from .asking import AT_ONCE, Ask, Flavor, Hook, JobSettings, RetryDelay
from .machines import Invitation, Machine, Token, Worker
from .names import DECLARED, LOCAL_WORKER, NAME_PATTERN, RESERVED_NAMES, SERVICE, Json
from .offers import Fire, Flow, LeftOut, Project, Schedule, Service, ServiceSpec, Trouble, Version
from .records import AuditEntry, Event, Page, Secret, Variable
from .work import Artifact, Attempt, Job, LogLine, MetricPoint, Run, TaskRun

__all__ = [
    "AT_ONCE",
    "DECLARED",
    "LOCAL_WORKER",
    "NAME_PATTERN",
    "RESERVED_NAMES",
    "SERVICE",
    "Artifact",
    "Ask",
    "Attempt",
    "AuditEntry",
    "Event",
    "Fire",
    "Flavor",
    "Flow",
    "Hook",
    "Invitation",
    "Job",
    "JobSettings",
    "Json",
    "LeftOut",
    "LogLine",
    "Machine",
    "MetricPoint",
    "Page",
    "Project",
    "RetryDelay",
    "Run",
    "Schedule",
    "Secret",
    "Service",
    "ServiceSpec",
    "TaskRun",
    "Token",
    "Trouble",
    "Variable",
    "Version",
    "Worker",
]
