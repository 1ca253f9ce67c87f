"""What a machine is found to have, from what surrounds the program."""

from __future__ import annotations

from typing import Any

import pytest

from farhand_worker.inventory import BadInventory, Said, Surroundings, detect, here, mask

MEMINFO = {"/proc/meminfo": "MemTotal:       33554432 kB\nMemFree:  1 kB\n"}
V2 = {"/proc/self/cgroup": "0::/user.slice/session.scope\n"}
V1 = {"/proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n0::/\n"}
GPU_JOB = {
    "SLURM_CPUS_ON_NODE": "2",
    "SLURM_MEM_PER_NODE": "1500",
    "SLURM_GPUS_ON_NODE": "2",
    "SLURM_JOB_GPUS": "0,1",
    "CUDA_VISIBLE_DEVICES": "0,1",
}


def around(
    environ: dict[str, str] | None = None, files: dict[str, str] | None = None, **more: Any
) -> Surroundings:
    kept = {**MEMINFO, **(files or {})}
    return Surroundings(environ or {}, kept.get, **{"cores": 8, **more})


@pytest.mark.parametrize(
    ("environ", "cpus", "ram_mb", "gpus", "devices"),
    [
        (GPU_JOB, 2, 1500, 2, ["0", "1"]),
        ({"SLURM_CPUS_ON_NODE": "4", "SLURM_MEM_PER_CPU": "1000"}, 4, 4000, 0, []),
        ({"SLURM_MEM_PER_CPU": "1000"}, 8, 8000, 0, []),
        ({"SLURM_CPUS_ON_NODE": "8"}, 8, 32768, 0, []),  # --mem=0 --exclusive tells no memory
        ({"SLURM_MEM_PER_NODE": "0"}, 8, 32768, 0, []),
        ({"SLURM_JOB_GPUS": "2-3,6"}, 8, 32768, 3, ["2", "3", "6"]),
        ({"SLURM_GPUS_ON_NODE": "1"}, 8, 32768, 1, ["0"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-4b2,MIG-77/1/0"}, 8, 32768, 2, ["GPU-4b2", "MIG-77/1/0"]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1111,MIG-2222"}, 8, 32768, 2, ["MIG-1111", "MIG-2222"]),
        ({"CUDA_VISIBLE_DEVICES": "4,5,6"}, 8, 32768, 3, ["4", "5", "6"]),
        ({"CUDA_VISIBLE_DEVICES": "4,5,4, 5"}, 8, 32768, 2, ["4", "5"]),
        ({"SLURM_JOB_GPUS": "1,1-2"}, 8, 32768, 2, ["1", "2"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, 8, 32768, 0, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 8, 32768, 0, []),
    ],
)
def test_a_batch_system_and_a_mask_say_what_is_lent(
    environ: dict[str, str], cpus: int, ram_mb: int, gpus: int, devices: list[str]
) -> None:
    """B057, B058."""
    found = detect(around(environ)).inventory
    assert (found.cpus, found.ram_mb, found.gpus, found.devices) == (cpus, ram_mb, gpus, devices)


def test_a_flag_comes_before_slurm_and_slurm_before_the_settings() -> None:
    found = detect(around(GPU_JOB), Said(cpus=0, gpus=0), Said(cpus=7, gpus=7, ram_mb=7))
    assert (found.inventory.cpus, found.inventory.gpus, found.inventory.ram_mb) == (0, 0, 1500)
    assert found.sources == {"cpus": "--cpus", "gpus": "--gpus", "ram_mb": "SLURM_MEM_PER_NODE"}


def test_the_settings_come_before_the_mask_the_cgroup_and_the_machine() -> None:
    files = {**V2, "/sys/fs/cgroup/cpu.max": "100000 100000", "/sys/fs/cgroup/memory.max": "1048576"}
    environ = {"CUDA_VISIBLE_DEVICES": "0,1,2"}
    found = detect(around(environ, files), settings=Said(cpus=3, gpus=2, ram_mb=512)).inventory
    assert (found.cpus, found.gpus, found.ram_mb, found.devices) == (3, 2, 512, ["0", "1"])


@pytest.mark.parametrize(
    ("files", "cpus", "ram_mb"),
    [
        ({**V2, "/sys/fs/cgroup/user.slice/cpu.max": "250000 100000"}, 2, 32768),
        ({**V2, "/sys/fs/cgroup/user.slice/session.scope/cpu.max": "50000 100000"}, 1, 32768),
        ({**V2, "/sys/fs/cgroup/cpu.max": "max 100000"}, 8, 32768),
        ({**V2, "/sys/fs/cgroup/cpu.max": "6400000 100000"}, 8, 32768),
        ({**V2, "/sys/fs/cgroup/user.slice/memory.max": "1073741824"}, 8, 1024),
        ({**V2, "/sys/fs/cgroup/user.slice/memory.max": "max"}, 8, 32768),
        (
            {
                **V1,
                "/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "400000\n",
                "/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
                "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "2147483648\n",
            },
            4,
            2048,
        ),
        ({**V1, "/sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n"}, 8, 512),
        (
            {
                **V1,
                "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            8,
            32768,
        ),
    ],
)
def test_a_cgroup_lends_no_more_than_it_may_use(files: dict[str, str], cpus: int, ram_mb: int) -> None:
    found = detect(around(files=files)).inventory
    assert (found.cpus, found.ram_mb) == (cpus, ram_mb)


@pytest.mark.parametrize(
    ("devices", "linux", "gpus"),
    [
        (("nvidia0", "nvidia1", "nvidia-uvm", "nvidiactl", "null"), True, 2),
        (("null", "tty"), True, 0),
        (("kfd", "null"), True, None),
        (("dxg",), True, None),
        (("null",), False, None),
    ],
)
def test_gpus_are_counted_by_their_device_files_or_not_known(
    devices: tuple[str, ...], linux: bool, gpus: int | None
) -> None:
    found = detect(around(devices=devices, linux=linux)).inventory
    assert found.gpus == gpus
    assert found.devices == (None if gpus is None else [str(index) for index in range(gpus)])


def test_what_nothing_tells_is_unknown() -> None:
    found = detect(Surroundings(linux=False))
    assert (found.inventory.cpus, found.inventory.gpus, found.inventory.ram_mb) == (None, None, None)
    assert set(found.sources.values()) == {"unknown"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [("0,1", ["0", "1"]), ("1, -1,0", ["1"]), ("NoDevFiles", []), ("", []), ("GPU-a", ["GPU-a"])],
)
def test_a_mask_shows_what_cuda_would_show(text: str, shown: list[str]) -> None:
    assert mask(text) == shown


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"SLURM_CPUS_ON_NODE": "many"}, "SLURM_CPUS_ON_NODE is 'many', which is no whole number"),
        ({"SLURM_MEM_PER_NODE": "2G"}, "give --ram-mb"),
        (
            {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0"},
            "2 GPUs by SLURM_GPUS_ON_NODE, but CUDA_VISIBLE_DEVICES names 1",
        ),
        (
            {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0,0"},
            "2 GPUs by SLURM_GPUS_ON_NODE, but CUDA_VISIBLE_DEVICES names 1",
        ),
    ],
)
def test_what_cannot_be_believed_is_named_with_its_remedy(environ: dict[str, str], words: str) -> None:
    with pytest.raises(BadInventory, match=words):
        detect(around(environ))


def test_this_machine_has_cores_and_memory() -> None:
    found = detect(here(), Said(gpus=0)).inventory
    assert found.cpus
    assert found.ram_mb
