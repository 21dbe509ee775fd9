"""The group of all commands; each one's module is loaded when it is called, so that `lowtide --help` is quick.

Other distributions may add commands: entry points of the group "lowtide.commands".
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

import click

from lowtide.errors import LowtideError
from lowtide.version import __version__

INTERRUPTED = 130

# Name: where it is (module below lowtide.cli, attribute), and what it does in one line.
COMMANDS = {
    "init": ("init", "init", "Write a small flow, its conf and its test."),
    "conf": ("conf", "conf", "Print a conf file to start from, or the alert rules."),
    "doctor": ("doctor", "doctor", "Check that everything a flow needs is there."),
    "check": ("check", "check", "Check a flow without running it."),
    "run": ("run", "run", "Run a flow."),
    "status": ("status", "status", "Show the jobs."),
    "logs": ("logs", "logs", "Show the log of a job."),
    "stop": ("status", "stop", "Stop a job."),
    "forget": ("logs", "forget", "Forget ended jobs: their logs, and how they ended."),
    "snapshot": ("snapshot", "snapshot", "Take a snapshot of a running job."),
    "snapshots": ("snapshots", "snapshots", "List, show, verify, commit and prune the snapshots of a job."),
    "state": ("state", "state", "Show the state of keys of a running job."),
    "wait": ("wait", "wait", "Wait until a job reaches a time."),
    "recover": ("recover", "recover", "Show what a recovery will do, then run the flow from that commit."),
    "lanes": ("lanes", "lanes", "Show how many lanes a job has, or give it more."),
    "submit-args": ("submit", "submit_args", "Print the arguments for spark-submit."),
    "tracker": ("tracker", "tracker", "Run the tracker that several jobs share, and ask it."),
    "up": ("services", "up", "Start the embedded Kafka and ZooKeeper."),
    "down": ("services", "down", "Stop the embedded services; their data stays."),
    "services": ("services", "services", "Show the embedded services."),
    "sinks": ("sinks", "sinks", "Make the tables that a flow writes; take staged records into their stores."),
    "topic": ("topic", "topic", "Create, list, read, write and delete Kafka topics."),
}


class LazyCommands(click.Group):
    """A group that knows its commands by name and line, and imports one only to call it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order in which a user meets them."""
        return [*COMMANDS, *_added()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported; None if there is none."""
        if cmd_name in COMMANDS:
            module, attribute, _ = COMMANDS[cmd_name]
            command = getattr(import_module(f"lowtide.cli.{module}"), attribute)
        elif cmd_name in (added := _added()):
            command = added[cmd_name].load()
        else:
            return None
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; UsageError that names the nearest one."""
        name = args[0]
        if self.get_command(ctx, name) is None and (near := get_close_matches(name, self.list_commands(ctx), n=1)):
            ctx.fail(f"there is no command {name!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' lines from the table, without importing any."""
        with formatter.section("Commands"):
            lines = [(name, line) for name, (_, _, line) in COMMANDS.items()]
            formatter.write_dl([*lines, *((name, _line_of(added)) for name, added in _added().items())])


def _line_of(added: EntryPoint) -> str:
    """Return the line of a command from elsewhere: its distribution's summary, which costs no import."""
    return added.dist.metadata["Summary"] if added.dist is not None else ""


def _added() -> dict[str, EntryPoint]:
    """The commands of other distributions, by name."""
    return {added.name: added for added in entry_points(group="lowtide.commands")}


@click.command(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lowtide", message="%(prog)s %(version)s")
def commands() -> None:
    """Python streaming flows inside Spark's Real-Time Mode."""


def run(arguments: Sequence[str], given: object = None) -> int:
    """Run the command line and return its exit code; print errors without a traceback.

    Args:
        arguments: The words after the program's name.
        given: The flow of a program that runs itself; commands find it as `click.get_current_context().obj`.
    """
    # Our error reports a lost connection; kazoo's own lines would come before it.
    logging.getLogger("lowtide_snapshots").addHandler(logging.NullHandler())
    try:
        code = commands.main(list(arguments), prog_name="lowtide", standalone_mode=False, obj=given)
    except LowtideError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(error.ctx.get_usage(), err=True)
        click.echo(f"error: {error.format_message()}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone: avoid a second error when the stream is closed at exit.
        sys.stderr.close()
        return 0
    return code if isinstance(code, int) else 0
