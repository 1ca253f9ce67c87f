from __future__ import annotations

import pytest

from farhand.provision.interface import ENDED, ENDING, PENDING, RUNNING, Seen
from farhand.provision.slurm.parsing import (
    STATES,
    Line,
    accounted,
    by_name,
    complaint,
    is_unknown,
    last_words,
    queue,
    shown,
    submitted,
    without_parsable,
)
from farhand.provision.slurm.provisioner import clusters_of


@pytest.mark.fault("4.3")
@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("4242\n", "4242"),
        ("4242;alpha\n", "4242;alpha"),
        ("Welcome to HPC, node 12\nquota: 80%\n4242\n", "4242"),
        ("4242;alpha\n*** have a nice day ***\n", "4242;alpha"),
        ("Submitted batch job 4242\n", "4242"),
        ("Submitted batch job 4242 on cluster alpha\n", "4242;alpha"),
        ("12 jobs are waiting\n", ""),
        ("sbatch: error: no\n", ""),
        ("", ""),
    ],
)
def test_the_id_is_found_whatever_stands_around_it(text: str, id: str) -> None:
    assert submitted(text) == id


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("sbatch: unrecognized option '--parsable'", True),
        ("Unknown option: --parsable", True),
        ("sbatch: error: Batch job submission failed: Invalid account", False),
    ],
)
def test_a_wrapper_without_parsable_is_told_from_a_refusal(text: str, refused: bool) -> None:
    """B072."""
    assert without_parsable(text) is refused


@pytest.mark.parametrize(
    ("state", "means"),
    [
        ("PENDING", PENDING), ("CONFIGURING", PENDING), ("REQUEUED", PENDING), ("REQUEUE_HOLD", PENDING),
        ("PREEMPTED", PENDING), ("SPECIAL_EXIT", PENDING), ("SOMETHING_NEW", PENDING), ("RUNNING", RUNNING),
        ("COMPLETING", ENDING), ("SUSPENDED", RUNNING), ("COMPLETED", ENDED), ("CANCELLED", ENDED),
        ("FAILED", ENDED), ("NODE_FAIL", ENDED), ("BOOT_FAIL", ENDED), ("DEADLINE", ENDED),
        ("OUT_OF_MEMORY", ENDED), ("REVOKED", ENDED), ("TIMEOUT", ENDED),
    ],
)  # fmt: skip
def test_every_state_has_its_meaning_and_its_words(state: str, means: str) -> None:
    """B077: no state is taken for another, and one that is not known means still there."""
    assert Line("7", "m", state, "Why").seen() == Seen(means, f"{state}: Why", "7")
    assert Line("7", "m", state, "None").seen() == Seen(means, state, "7")
    assert state == "SOMETHING_NEW" or STATES[state] == means


def test_one_answer_of_squeue_has_all_jobs_and_banners_are_passed_over() -> None:
    text = "motd | of | the | day\nCLUSTER: alpha\n7|PENDING|m1|Priority\n 8 |RUNNING|m2|None\nhello\n"
    assert queue(text) == [Line("7", "m1", "PENDING", "Priority"), Line("8", "m2", "RUNNING", "None")]
    assert queue("7|PENDING|m1|Priority", "alpha")[0].id == "7;alpha"


def test_of_two_jobs_with_one_name_the_one_that_lives_counts_then_the_older() -> None:
    lines = [Line("9", "m", "PENDING", ""), Line("7", "m", "CANCELLED", ""), Line("8", "m", "PENDING", "")]
    assert [line.id for line in by_name(lines, ["m", "other"])["m"]] == ["8", "9", "7"]
    assert "other" not in by_name(lines, ["m", "other"])
    lines = [Line("6", "m", "COMPLETING", ""), *lines]
    assert [line.id for line in by_name(lines, ["m"])["m"]] == ["8", "9", "6", "7"]


def test_a_job_that_two_names_of_one_cluster_list_is_one_job() -> None:
    """Else it would be cancelled as its own double."""
    lines = [Line("7;lab", "m", "RUNNING", ""), Line("7", "m", "RUNNING", "")]
    assert [line.id for line in by_name(lines, ["m"])["m"]] == ["7;lab"]


def test_what_scontrol_and_sacct_say_of_a_job_that_has_gone() -> None:
    text = (
        "JobId=7 JobName=m JobState=NODE_FAIL Reason=NodeDown Dependency=(null) StdOut=/home/me/x.out Power="
    )
    assert shown(text) == (Seen(ENDED, "NODE_FAIL: NodeDown", "7"), "/home/me/x.out")
    assert shown("slurm_load_jobs error: Invalid job id specified") == (None, "")
    assert is_unknown("slurm_load_jobs error: Invalid job id specified")
    assert not is_unknown("slurm_load_jobs error: Unable to contact slurm controller")
    assert accounted("motd\n7|CANCELLED by 1000|0:0\n") == Seen(ENDED, "CANCELLED, exit 0:0", "7")
    assert accounted("7|PREEMPTED|0:0\n") == Seen(ENDED, "PREEMPTED, exit 0:0", "7")
    assert accounted("7|RUNNING|0:0\n") == Seen(ENDED, "RUNNING, exit 0:0", "7"), "a record left open"
    assert accounted("Slurm accounting storage is disabled") is None


def test_of_a_jobs_output_our_own_line_is_told_else_the_last() -> None:
    assert last_words("x\nfarhand: prerun failed: line 1\ntrailing\n", "farhand:") == "prerun failed: line 1"
    assert last_words("Traceback\nImportError: no\n\n", "farhand:") == "ImportError: no"
    assert last_words("", "farhand:") == ""


def test_errors_are_told_in_their_own_words_without_the_banner() -> None:
    text = "Welcome!\nsbatch: error: Batch job submission failed: QOSMaxSubmitJobPerUserLimit\n"
    assert complaint(text) == "sbatch: error: Batch job submission failed: QOSMaxSubmitJobPerUserLimit"
    assert complaint("nothing special") == "nothing special"
    assert len(complaint("error " * 100)) == 300


def test_the_clusters_that_options_name() -> None:
    assert clusters_of(["--clusters=a,b", "-M c", "--mem=1G"]) == {"a", "b", "c"}
