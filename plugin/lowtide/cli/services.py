"""`lowtide up`, `lowtide down`, `lowtide services`: the embedded Kafka and ZooKeeper."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from lowtide.cli.options import as_json, with_conf
from lowtide.cli.output import table
from lowtide.conf import Conf
from lowtide.embedded import ServiceStatus, servers, service_status
from lowtide.embedded import down as stop_services
from lowtide.embedded import up as start_services
from lowtide.jars.third_party import jars_folder

KIB, MIB = 1 << 10, 1 << 20


@click.command()
@with_conf
def up(conf: Conf) -> None:
    """Start the embedded Kafka and ZooKeeper and wait until they answer.

    They keep running when this command ends. Services that already run stay as they are.
    """
    embedded = conf.embedded
    wanted = servers(Path(embedded.folder), {"kafka": embedded.kafka_port, "zookeeper": embedded.zookeeper_port})
    began = time.monotonic()
    console = Console(stderr=True, highlight=False)
    with console.status("starting the services") as status:
        if not jars_folder().is_dir():
            status.update("fetching Kafka's jars, once for this machine")

        def progress(name: str, what: str) -> None:
            status.update(f"{name}: {what}")
            console.print(f"{name}: {what} [dim]({time.monotonic() - began:.1f} s)[/dim]")

        running = start_services(wanted, progress=progress)
    for server in running:
        if server.name == "kafka" and server.address != conf.kafka.bootstrap_servers:
            console.print(
                f"note: flows look for Kafka at {conf.kafka.bootstrap_servers}; "
                f'set bootstrap_servers = "{server.address}" in \\[kafka] of the conf to have them use this one'
            )


@click.command()
@with_conf
def down(conf: Conf) -> None:
    """Stop the embedded services; their data stays."""
    console = Console(stderr=True, highlight=False)
    folder = Path(conf.embedded.folder)
    if not stop_services(folder, progress=lambda name, what: console.print(f"{name}: {what}")):
        console.print(f"no services run in {folder}")


@click.command()
@with_conf
@as_json
def services(conf: Conf, as_json: bool) -> None:
    """Show the embedded services: state, address, process, size of the data, log."""
    found = service_status(Path(conf.embedded.folder))
    if as_json:
        click.echo(json.dumps([{**asdict(service), "log": str(service.log)} for service in found], indent=2))
        return
    click.echo(table(("service", "state", "address", "process", "data", "log"), [_row(service) for service in found]))


def _row(service: ServiceStatus) -> tuple[str, ...]:
    state = service.state if service.dies_with is None else f"{service.state}, with process {service.dies_with}"
    log = service.log
    if log.is_relative_to(Path.cwd()):
        log = log.relative_to(Path.cwd())
    process = str(service.pid or "-")
    return service.name, state, service.address or "-", process, _size(service.data_bytes), str(log)


def _size(count: int) -> str:
    return f"{count / MIB:.1f} MiB" if count >= MIB else f"{count // KIB} KiB"
