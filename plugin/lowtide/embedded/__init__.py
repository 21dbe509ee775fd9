"""Real Kafka and real ZooKeeper as child processes, on loopback, with all their data in one folder.

with EmbeddedServices(folder) as services:      # tests and benchmarks: the servers die with this process
    services.kafka, services.zookeeper          # "127.0.0.1:24711", "127.0.0.1:29380"

up(servers(folder, ports)); service_status(folder); down(folder)    # `lowtide up`: they outlive this process
"""

from lowtide.embedded.kafka import KafkaServer
from lowtide.embedded.server import Server
from lowtide.embedded.services import EmbeddedServices, ServiceStatus, service_status
from lowtide.embedded.supervise import down, servers, up
from lowtide.embedded.zookeeper import ZooKeeperServer

__all__ = [
    "EmbeddedServices",
    "KafkaServer",
    "Server",
    "ServiceStatus",
    "ZooKeeperServer",
    "down",
    "servers",
    "service_status",
    "up",
]
