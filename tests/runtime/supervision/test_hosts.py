"""Jobs on two hosts: what dies on the other one is named too, and ends there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runtime.supervision.conftest import Start
from two_hosts import TwoHosts

from graphc.runtime.supervision.connection import LOST


def test_a_job_on_two_hosts_ends_in_order(start: Start, hosts: TwoHosts) -> None:
    ended = start(2, hosts=hosts, steps=4).end()
    assert (ended.status, ended.out) == (0, '{"steps": 4}\n')
    found = re.findall(r"^\[process (\d) on (\w+)\] hello", ended.err, re.MULTILINE)
    here, there = hosts.names
    assert sorted(host for _, host in found) == sorted([here, there, there])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_on_another_host_is_named(start: Start, hosts: TwoHosts, number: int) -> None:
    job = start(1, {"limits": {"heartbeat": 1.0}}, hosts=hosts, pause=0.01)
    job.wait_for_step(40)
    job.kill(job.pid(1), number)
    ended = job.end()
    how = "died" if number == signal.SIGKILL else "is frozen (it sends no heartbeat)"
    assert ended.status == 75
    assert (
        f"process 1 on {hosts.names[1]} (pid {job.pid(1)}, rank 1) {how}" in ended.lost["message"]
    )
    (other,) = ended.lost["notes"]
    head = re.escape(f"process 0 on {hosts.names[0]} (pid {job.pid(0)}, rank 0): ")
    assert re.match(f"{head}(has died too, at )?step", other)  # MPI notices a death, too
    assert ended.lost["at"] - job.since < (2.0 if number == signal.SIGKILL else 6.0)


@pytest.mark.ci
def test_nothing_is_left_on_another_host_when_the_launcher_is_killed(
    start: Start, hosts: TwoHosts
) -> None:
    job = start(1, hosts=hosts, pause=0.01, native=True)
    job.wait_for_step()
    job.kill(job.launcher.pid)
    assert job.end().status == -signal.SIGKILL


@pytest.mark.ci
def test_a_cut_cable_is_a_frozen_host(start: Start, hosts: TwoHosts) -> None:
    """Nothing can be sent to the other host: its processes end when they notice, by themselves."""
    job = start(1, {"limits": {"heartbeat": 1.0}}, hosts=hosts, pause=0.01)
    job.wait_for_step()
    hosts.cut()
    ended = job.end()
    assert ended.status == 75 and "is frozen (it sends no heartbeat)" in ended.lost["message"]
    assert f"process 1 on {hosts.names[1]}" in ended.lost["message"]


@pytest.mark.ci
def test_graphc_run_on_two_hosts_has_the_bits_of_threads(
    hosts: TwoHosts, root: Path, tmp_path: Path
) -> None:
    command = [
        sys.executable, "-m", "graphc", "run", root / "examples/digits.gc", "--json", "--steps", "6",
        "--strategy", "mirrored(4) * reproducible(8)",
    ]  # fmt: skip
    launch = ["--launch", "mpi", "--hosts", ",".join(hosts.addresses)]
    reports = []
    for line in (command, [*hosts.here, *command, *launch]):
        done = subprocess.run(
            line, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120,
            env={**os.environ, **hosts.variables},
        )  # fmt: skip
        reports.append(json.loads(done.stdout))
    one, two = reports
    assert (two["processes"], two["hosts"], two["devices"]) == (2, 2, 4)
    assert two["params_sha256"] == one["params_sha256"] and two["loss"] == one["loss"]


LISTENS = """
import time
from graphc.runtime.supervision.watch import WatchServer
watch = WatchServer(1, 60.0, print, "10.77.0.1")
print(watch.address, watch.token, flush=True)
while True:
    watch.poll(1.0)
"""
WORKS = """
import time
from graphc.runtime.supervision.connection import watched
with watched():
    time.sleep(100)
"""


@pytest.mark.slow
def test_a_process_whose_launcher_can_not_be_reached_any_more_ends(hosts: TwoHosts) -> None:
    def begun(host: list[str], program: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*host, sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
            env={**os.environ, **variables},
        )  # fmt: skip

    with begun(hosts.here, LISTENS) as server:
        assert server.stdout is not None
        address, token = server.stdout.readline().split()
        inside = ["ip", "netns", "exec", hosts.names[1]]
        with begun(inside, WORKS, GRAPHC_WATCH=address, GRAPHC_WATCH_TOKEN=token) as process:
            time.sleep(2)
            assert process.poll() is None
            hosts.cut()
            try:
                assert process.wait(40) == LOST
            finally:
                process.kill()
                server.kill()
