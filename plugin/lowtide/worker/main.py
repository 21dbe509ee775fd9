"""A worker's life: it meets the service, gets the plan, builds its stage and runs the loop."""

import json
import os
import signal

import cloudpickle

from lowtide.wire import Kind, connect, receive, send
from lowtide.worker.attachment import Attachment
from lowtide.worker.birth import Birth
from lowtide.worker.link import Link
from lowtide.worker.loop import Loop

FLUSH_TIMEOUT_S = 5.0


def work(birth: Birth) -> int:
    """Runs the worker to its end and returns the process's exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = connect(birth.service, birth.secret)
    hello = {"ask": "worker", "worker": birth.name, "number": birth.number, "address": birth.address}
    send(control, Kind.ASK, hello | {"pid": os.getpid()})
    kind, payload = receive(control)
    if kind != Kind.PLAN:
        raise RuntimeError(f"the service refused worker {birth.name}: {json.loads(payload)['refused']}")
    link = Link(control)
    try:
        stage = cloudpickle.loads(payload).stage(birth.level, birth.name, birth.number)
    except Exception as error:
        text = f"worker {birth.name} could not load the flow: {type(error).__name__}: {error}"
        link.send(Kind.ASK, json.dumps({"failed": text}).encode())
        return 1
    loop = Loop(stage, Attachment(birth.incarnation, birth.level > 0), birth.listener, link, birth.secret)
    loop.run()
    stage.close(FLUSH_TIMEOUT_S)
    return 0
