"""provisioners.json: what is taken, and each mistake by its field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from farhand.errors import Usage
from farhand.provision.config import parse, read
from farhand.provisioning import Shape

PROFILE: dict[str, Any] = {"name": "gpu", "labels": ["gpu"], "cpus": 4, "gpus": 1, "ram_mb": "16G"}
SLURM: dict[str, Any] = {
    "type": "slurm",
    "name": "hpc",
    "login": "me@login",
    "engine_url": "https://flows.example.org/",
    "profiles": [PROFILE],
}
COMMAND: dict[str, Any] = {
    "type": "command", "name": "cloud", "submit": ["a"], "status": ["b"], "cancel": ["c"],
    "profiles": [{"name": "large"}],
}  # fmt: skip
BY_SSH: dict[str, Any] = {
    "type": "slurm",
    "name": "hpc",
    "login": "me@login",
    "route": "ssh",
    "profiles": [PROFILE],
}
HERE = "http://127.0.0.1:8420"


def test_what_is_left_out_has_its_default_and_profiles_are_shapes() -> None:
    (hpc, cloud) = parse([SLURM, COMMAND], "file", HERE)
    assert (hpc.max_idle_s, hpc.provision_timeout_s, hpc.max_outstanding) == (300, 900, 1)
    assert (hpc.on_stop, hpc.route, hpc.engine_url) == ("cancel", "direct", "https://flows.example.org")
    assert hpc.shapes() == (Shape("hpc", "gpu", ("gpu",), 4, 1, 16384, 1, 1),)
    assert (cloud.submit, cloud.engine_url) == (("a",), "")


def test_times_take_units_and_no_limit_is_0() -> None:
    (hpc,) = parse([{**SLURM, "max_idle_s": 0, "provision_timeout_s": "2h"}], "file")
    assert (hpc.max_idle_s, hpc.provision_timeout_s) == (0, 7200)


def wrong(**fields: Any) -> dict[str, Any]:
    return {**SLURM, **fields}


def profiled(**fields: Any) -> dict[str, Any]:
    return {**SLURM, "profiles": [{**PROFILE, **fields}]}


@pytest.mark.fault("4.21")
@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, "file is no list of provisioners"),
        (["x"], "provisioner 1 is no object"),
        ([{"name": "x"}], "provisioner 1: type None is none of slurm, command"),
        ([wrong(type=["slurm"])], "is none of slurm, command"),
        ([wrong(nmae="x")], "provisioner 1 (hpc) has unknown fields: nmae"),
        ([{**COMMAND, "login": "x"}], "has unknown fields: login"),
        ([{k: v for k, v in COMMAND.items() if k != "cancel"}], "lacks cancel"),
        ([wrong(name="Hpc")], "name 'Hpc' is not a name"),
        ([wrong(name="a" * 300)], "is not a name"),
        ([wrong(name="$(id)")], "is not a name"),
        ([wrong(name='a"b')], "is not a name"),
        ([wrong(name="a\nb")], "has a line break"),
        ([SLURM, SLURM], "two provisioners are called hpc"),
        ([wrong(profiles=[])], "profiles is no list with at least one profile"),
        ([wrong(profiles=[PROFILE, PROFILE])], "two profiles have one name"),
        ([wrong(login="-oProxyCommand=id")], "is no login"),
        ([wrong(login="me@-x")], "is no login"),
        ([wrong(login="me@host; id")], "is no login"),
        ([wrong(login="me@host\n")], "has a line break"),
        ([wrong(ssh_key="a\nb")], "has a line break"),
        ([wrong(ssh_options="x")], "is no list of texts"),
        ([wrong(engine_url="ftp://x")], "is no address"),
        ([wrong(engine_url="https://x/$(id)'")], "is no address"),
        ([wrong(engine_url="http://flows.example.org")], "is not encrypted"),
        ([{k: v for k, v in SLURM.items() if k != "engine_url"}], "lacks engine_url"),
        ([wrong(insecure=1)], "insecure 1 is neither true nor false"),
        ([wrong(max_idle_s=-1)], "max_idle_s -1 is not a duration"),
        ([wrong(provision_timeout_s="soon")], "provision_timeout_s 'soon' is not a duration"),
        ([wrong(max_outstanding=0)], "max_outstanding 0 is no whole number of at least 1"),
        ([wrong(max_outstanding=True)], "max_outstanding True is no whole number"),
        ([wrong(on_stop="drop")], "on_stop 'drop' is none of cancel, keep"),
        ([wrong(route="ssh")], "workers come by ssh, to no engine_url of yours"),
        ([{**BY_SSH, "login": ""}], "the route ssh leads through a login node"),
        ([{**BY_SSH, "relay_host": "a b"}], "relay_host 'a b' is no name or address"),
        ([{**BY_SSH, "relay": []}], "relay [] is no command"),
        ([{**BY_SSH, "relay_port": 80}], "relay_port 80 is no port from 1024 to 65535"),
        ([wrong(relay_port=20001)], "relay, relay_host and relay_port are of the route ssh"),
        ([wrong(relay_host="node1")], "relay, relay_host and relay_port are of the route ssh"),
        ([wrong(route="pigeon")], "route 'pigeon' is none of direct, ssh"),
        ([wrong(poll_s=0)], "poll_s 0 is no time at all"),
        ([profiled(color="red")], "profile 1 (gpu) has unknown fields: color"),
        ([profiled(cpus=0)], "cpus 0 is no whole number of at least 1"),
        ([profiled(gpus="one")], "gpus 'one' is no whole number"),
        ([profiled(ram_mb="much")], "ram_mb 'much' is not a size"),
        ([profiled(labels=["GPU"])], "has 'GPU', which is no label"),
        ([profiled(labels=["a\n"])], "has a line break"),
        ([profiled(sbatch=["partition=gpu"])], "which is no option of sbatch"),
        ([profiled(sbatch=["--mem=1G\nid"])], "has a line break"),
        ([profiled(sbatch=["--job-name=x"])], "could not be told from others"),
        ([profiled(sbatch=["--array=1-9"])], "could not be told from others"),
        ([profiled(prerun=["module load \\"])], "which is no whole command"),
        ([profiled(prerun="module load x")], "prerun 'module load x' is no list of texts"),
        ([profiled(worker=[])], "is no command"),
        ([profiled(parallel=0)], "parallel 0 is no whole number"),
    ],
)
def test_each_mistake_is_told_by_its_field(found: Any, said: str) -> None:
    with pytest.raises(Usage) as raised:
        parse(found, "file", HERE)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_local_sbatch_needs_no_address_and_a_public_server_none_for_a_remote_one() -> None:
    parse([{"type": "slurm", "name": "here", "profiles": [PROFILE]}], "file", HERE)
    bare = {key: value for key, value in SLURM.items() if key != "engine_url"}
    parse([bare], "file", "https://flows.example.org")


def test_a_directory_may_say_it_in_either_file_and_not_in_both(tmp_path: Path) -> None:
    assert read(tmp_path) == ()
    toml = (
        '[[provisioner]]\ntype = "command"\nname = "cloud"\nsubmit = ["a"]\nstatus = ["b"]\ncancel = ["c"]\n'
    )
    (tmp_path / "farhand.toml").write_text(toml + '[[provisioner.profiles]]\nname = "large"\n')
    assert [settings.name for settings in read(tmp_path, HERE)] == ["cloud"]
    (tmp_path / "provisioners.json").write_text(json.dumps([SLURM]))
    with pytest.raises(Usage, match="keep one of the two"):
        read(tmp_path, HERE)
    (tmp_path / "farhand.toml").write_text("[server]\n")
    assert [settings.name for settings in read(tmp_path, HERE)] == ["hpc"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("[", "is no JSON"), ('[{"type": "slurm", "type": "command"}]', "'type' is there twice")],
)
def test_a_file_that_is_none_is_said(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "provisioners.json").write_text(text)
    with pytest.raises(Usage, match=said):
        read(tmp_path)


def test_by_ssh_no_address_of_this_server_is_needed() -> None:
    (hpc,) = parse([{**BY_SSH, "relay_host": "Login1"}], "file", HERE)
    assert (hpc.relay, hpc.relay_host) == (("farhand-worker",), "login1")
