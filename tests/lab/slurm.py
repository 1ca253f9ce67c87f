"""A Slurm of our own: munged, slurmctld and two slurmd of invented sizes, on free ports, in one directory."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil

from tests.harness.waiting import eventually
from tests.lab.accounting import Accounting
from tests.optional import need

_FAKE_GPUS = ("null", "zero", "full", "random")
"""Slurm takes only character devices for GPUs; these are on every machine."""

_DAEMONS = 4

_CONF = """\
ClusterName=lab
SlurmctldHost={host}({controller})
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobAcctGatherType=jobacct_gather/none
{accounting}
JobRequeue=1
InactiveLimit=0
KillWait=5
MinJobAge={kept_s}
SlurmctldTimeout=30
SlurmdTimeout=10
MailProg=/bin/true
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr={node} Port={ports[1]} CPUs=8 RealMemory=32000 Gres=gpu:a100:4
NodeName=n2 NodeHostname={host} NodeAddr={node} Port={ports[2]} CPUs=4 RealMemory=16000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=gpu DefMemPerCPU=500 Nodes=n1 MaxTime=60 State=UP PreemptMode=OFF
PartitionName=main DefMemPerCPU=500 Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PreemptMode=OFF
PartitionName=spot DefMemPerCPU=500 Nodes=n2 State=UP PreemptMode=REQUEUE
PartitionName=scrap DefMemPerCPU=500 Nodes=n2 State=UP PreemptMode=CANCEL
PartitionName=urgent DefMemPerCPU=500 Nodes=n2 State=UP PreemptMode=OFF PriorityTier=10
"""


class Slurm:
    """The daemons. ``environment`` is what Slurm's commands need to find them.

    ``place`` is entered to start a daemon, or a command, on the machine of the ``controller`` or of the
    ``node``, which have these addresses. ``kept_s``: so long the controller itself knows of what has ended.
    """

    def __init__(
        self,
        directory: Path,
        controller: str = "127.0.0.1",
        node: str = "127.0.0.1",
        place: Callable[[str], AbstractContextManager[None]] = lambda _: contextlib.nullcontext(),
        accounting: Accounting | None = None,
        kept_s: int = 60,
    ) -> None:
        self._accounting = accounting
        self._kept_s = kept_s
        self._addresses = {"controller": controller, "node": node}
        self._place = place
        self.directory = directory
        self.environment = {"SLURM_CONF": str(directory / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every daemon, and wait until both nodes are idle."""
        for name in ("state", "spool/n1", "spool/n2"):
            (self.directory / name).mkdir(parents=True)
        ports = _free_ports(3)
        host, user = socket.gethostname().partition(".")[0], getpass.getuser()
        conf = _CONF.format(
            directory=self.directory,
            ports=ports,
            host=host,
            user=user,
            kept_s=self._kept_s,
            accounting=_accounting_of(self._accounting),
            **self._addresses,
        )
        (self.directory / "slurm.conf").write_text(conf)
        gpus = "".join(f"NodeName=n1 Name=gpu Type=a100 File=/dev/{name}\n" for name in _FAKE_GPUS)
        (self.directory / "gres.conf").write_text(gpus)
        key = self.directory / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        where = self.directory
        self._daemons["munged"] = self._run(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={where}/munge.sock",
            f"--pid-file={where}/munged.pid", f"--seed-file={where}/munge.seed",
        )  # fmt: skip
        eventually((where / "munge.sock").exists, what="munged listens")
        if self._accounting is not None:
            self._accounting.start(self._run)
        self.start_controller()
        for node in ("n1", "n2"):
            self.start_node(node)

    def _resumed(self, node: str) -> bool:
        """Asked again each time: a node that was marked down may register after it was resumed."""
        self.ask("scontrol", "update", f"nodename={node}", "state=resume")
        return self._is_idle()

    def _is_idle(self) -> bool:
        return set(self.ask("sinfo", "-h", "-N", "-o", "%N %T").splitlines()) == {"n1 idle", "n2 idle"}

    def start_controller(self) -> None:
        """Start the controller (again)."""
        self._daemons["slurmctld"] = self._run("slurmctld", "-D", "-i")

    def start_node(self, node: str) -> None:
        """Start a node (again), and wait until both are idle."""
        self._daemons[node] = self._run("slurmd", "-D", "-N", node, name=node)
        if len(self._daemons) == _DAEMONS:
            eventually(lambda: self._resumed(node), 60, "both nodes are idle")

    def end(self, name: str) -> None:
        """End one daemon: slurmctld, or a node by its name."""
        daemon = self._daemons.pop(name)
        daemon.terminate()
        daemon.wait(20)

    def kill_node(self, node: str, job: str) -> None:
        """What the death of a machine looks like: everything on it is gone at once, and nobody says so."""
        daemon = self._daemons.pop(node)
        daemon.kill()
        daemon.wait(20)
        for of_job in (f"slurmstepd: [{job}.", ""):  # first who would tell of the others' ends
            for process in psutil.process_iter(["cmdline", "environ"]):
                line, environ = " ".join(process.info["cmdline"] or []), process.info["environ"] or {}
                if line.startswith(of_job) if of_job else environ.get("SLURM_JOB_ID") == job:
                    process.kill()

    def stop(self) -> None:
        """Cancel every job, wait for their ends, then end the daemons, the controller after the nodes."""
        with contextlib.suppress(subprocess.SubprocessError):
            self.ask("scancel", f"--user={getpass.getuser()}")
            eventually(lambda: not self.ask("squeue", "-h"), 20, "no job is left")
        for name in ("n1", "n2", "slurmctld", "munged"):
            if name in self._daemons:
                self.end(name)

    def ask(self, *words: str, text: str = "") -> str:
        """What one of Slurm's commands prints; empty when it fails."""
        with self._place("controller"):
            done = subprocess.run(
                words,
                env={**os.environ, **self.environment},
                input=text,
                capture_output=True,
                text=True,
                timeout=20,
                cwd=self.directory,
            )
        return done.stdout.strip() if done.returncode == 0 else ""

    def jobs(self, *states: str) -> list[tuple[str, str, str]]:
        """Id, name and state of the jobs in these states (those that have not ended, if none is given)."""
        asked = ["squeue", "-h", "-o", "%i %j %T", *([f"--states={','.join(states)}"] if states else [])]
        return [(id, name, state) for id, name, state in (ln.split() for ln in self.ask(*asked).splitlines())]

    def _run(self, program: str, *words: str, name: str = "") -> subprocess.Popen[bytes]:
        path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin") or program
        clean = {key: value for key, value in os.environ.items() if key != "WITNESS_MARK"}
        place = self._place("node" if program == "slurmd" else "controller")
        with place, (self.directory / f"{name or Path(program).name}.output").open("ab") as output:
            process = subprocess.Popen(
                [path, *words],
                env={**clean, **self.environment},
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        return process


def _accounting_of(accounting: Accounting | None) -> str:
    if accounting is None:
        return "AccountingStorageType=accounting_storage/none"
    lines = ["Type=accounting_storage/slurmdbd", "Host=127.0.0.1", f"Port={accounting.port}"]
    lines.append(f"Pass={accounting.directory}/munge.sock")  # by which munge it proves itself, not a password
    return "\n".join(f"AccountingStorage{line}" for line in lines)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


@contextlib.contextmanager
def cluster(directory: Path, **where: Any) -> Iterator[Slurm]:
    """A running Slurm, ended at the end whatever happened. Skips the test where there is none."""
    need("Slurm")
    directory.mkdir(parents=True, exist_ok=True)
    slurm = Slurm(directory, **where)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()
