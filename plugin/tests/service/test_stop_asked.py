"""A driver program that gets SIGTERM can ask its service whether that was a request to stop the job. No Spark."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hanging import HANGS_S
from life_settings import setting

from lowtide.assignment.client import ServiceClient
from lowtide.status.control_client import ControlClient
from lowtide_snapshots.job.control_address import ControlAddress, fingerprint

if TYPE_CHECKING:
    from process_life import Life

SECRET = b"the secret of a test, 32 bytes.."


@pytest.mark.zookeeper
def test_a_request_to_stop_is_told_from_a_signal_to_the_program_alone(life: Life, zookeeper: str) -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program,
        ServiceClient(life.address, SECRET) as service,
    ):
        given = setting(zookeeper, life.incarnation, driver_pid=program.pid)
        address, certificate = service.begin(given, b"")
        control = ControlAddress.proved(
            given.control.token,
            job=given.job,
            incarnation=given.incarnation,
            address=address,
            certificate=fingerprint(ssl.PEM_cert_to_DER_cert(certificate)),
        )
        assert not service.status().stop_asked
        ControlClient(control, given.control.token).stop()
        assert program.wait(HANGS_S) == -signal.SIGTERM
        assert service.status().stop_asked
