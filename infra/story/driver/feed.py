"""Makes the topics, or writes orders at a steady rate: `feed.py topics LANES`, `feed.py RATE SECONDS` until SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lowtide.conf import Conf
from lowtide.connectors.kafka_access import librdkafka_settings

CONF = Path(os.environ.get("CONF", "/home/lowtide/cluster.toml"))
PARTITIONS = 2
CUSTOMERS = 97


def make_topics(settings: dict[str, Any], lanes: int) -> None:
    client = AdminClient(settings)
    for made in client.create_topics([NewTopic("orders", PARTITIONS), NewTopic("counted", lanes)]).values():
        made.result(30)


def feed(settings: dict[str, Any], rate: float, seconds: float) -> int:
    producer = Producer(settings | {"linger.ms": "2", "enable.idempotence": "true"})
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    began, sent, total = time.monotonic(), 0, int(rate * seconds)
    while sent < total and not asked:
        due = min(total, int((time.monotonic() - began) * rate))
        for number in range(sent, due):
            order = {"customer": f"customer-{number * 7919 % CUSTOMERS}", "number": number}
            producer.produce("orders", json.dumps(order), partition=number % PARTITIONS)
        sent = max(sent, due)
        producer.poll(0.005)
    producer.flush(60)
    return sent


if __name__ == "__main__":
    known = librdkafka_settings(Conf.load(CONF).kafka)
    if sys.argv[1] == "topics":
        make_topics(known, int(sys.argv[2]))
    else:
        print(feed(known, float(sys.argv[1]), float(sys.argv[2])))
