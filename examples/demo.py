"""Runs examples/payments.py on a Kafka of its own, shows what it delivers, and takes everything down again.

Each command is shown as one would type it. Data and logs stay in .lowtide/demo until the next time.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FLOW = Path("examples/payments.py")
FOLDER = Path(".lowtide/demo")
PAYMENTS = [
    {"card": "4711", "cents": 1_250, "shop": "bakery"},
    {"card": "4711", "cents": 129_900, "shop": "bicycles"},
    {"card": "0815", "cents": 450_000, "shop": "jeweller"},
    "not a payment",
    {"card": "4711", "cents": 200_000, "shop": "travel agency"},
]
ALERTS, LETTERS = 3, 1
ARRIVE_WITHIN_S = 30.0
GAUGES_EVERY_S = 1.5
"""A little more than the workers take between two reports of what they have counted."""

# Port 0 takes a free one, so that the demo runs beside whatever runs here already.
CONF = f"""\
[job]
folder = "{FOLDER}/jobs"

[kafka]
bootstrap = "{{bootstrap}}"

[spark]
checkpoint_folder = "{FOLDER}/checkpoints"

[embedded]
folder = "{FOLDER}/services"
kafka_port = 0
zookeeper_port = 0
"""
CONF_FILE = FOLDER / "lowtide.toml"


def say(text: str) -> None:
    print(text, flush=True)


def lowtide(*words: str, quiet: bool = False) -> str:
    """Run a command of Lowtide; returns what it printed. Ends the demo if it fails."""
    command = ["lowtide", *words, "--conf", str(CONF_FILE)]
    if not quiet:
        say(f"\n$ {shlex.join(command)}")
    done = subprocess.run(
        [sys.executable, "-m", "lowtide.cli", *command[1:]], check=False, stdout=subprocess.PIPE, text=True
    )
    if done.stdout and not quiet:
        say(done.stdout.rstrip("\n"))
    if done.returncode:
        raise SystemExit(f"demo: {shlex.join(command)} ended with {done.returncode}")
    return done.stdout


def produce(bootstrap: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for payment in PAYMENTS:
        message = payment if isinstance(payment, str) else json.dumps(payment)
        say(f"payments <- {message}")
        producer.produce("payments", message.encode())
    producer.flush(ARRIVE_WITHIN_S)


def show_results(bootstrap: str) -> None:
    """Print what the flow has delivered, until all of it has come."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer: Any = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False})
    known = consumer.list_topics(timeout=ARRIVE_WITHIN_S).topics
    topics = ("large-payments", "unreadable")
    consumer.assign([TopicPartition(name, p, OFFSET_BEGINNING) for name in topics for p in known[name].partitions])
    deadline, arrived = time.monotonic() + ARRIVE_WITHIN_S, 0
    while arrived < ALERTS + LETTERS and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            arrived += 1
            say(f"{message.topic()} -> {message.value().decode()}")
    consumer.close()
    if arrived < ALERTS + LETTERS:
        raise SystemExit(f"demo: {arrived} of {ALERTS + LETTERS} records arrived; log: {FOLDER}/jobs/payments/job.log")


def services() -> str:
    """Start them; returns Kafka's address."""
    CONF_FILE.write_text(CONF.format(bootstrap="127.0.0.1:9092"))
    lowtide("up")
    told = json.loads(lowtide("services", "--json", quiet=True))
    bootstrap = str(next(service["address"] for service in told if service["name"] == "kafka"))
    CONF_FILE.write_text(CONF.format(bootstrap=bootstrap))
    return bootstrap


def create_topics() -> None:
    there = {topic["name"] for topic in json.loads(lowtide("topic", "list", "--json", quiet=True))}
    for name in ("payments", "large-payments", "unreadable"):
        if name in there:
            lowtide("topic", "delete", name, "--yes")
        lowtide("topic", "create", name, "--partitions", "2")


def main() -> None:
    os.chdir(Path(__file__).parents[1])
    FOLDER.mkdir(parents=True, exist_ok=True)
    bootstrap = services()
    try:
        create_topics()
        lowtide("check", str(FLOW), "--explain")
        lowtide("run", str(FLOW), "--detach")
        try:
            say("")
            produce(bootstrap)
            show_results(bootstrap)
            time.sleep(GAUGES_EVERY_S)
            lowtide("status")
        finally:
            lowtide("stop", "payments")
    finally:
        lowtide("down")
    say(f"\nThe flow is {FLOW}; its data and logs are in {FOLDER}.")


if __name__ == "__main__":
    main()
