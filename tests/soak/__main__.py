"""`make soak`: a job under load for half an hour, over kills; the last line is JSON."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from pathlib import Path

import click
from demo.showing import Show

from .run import Soak

FOLDER = Path(".lowtide/soak")


@click.command(context_settings={"max_content_width": 100})
@click.option("--minutes", default=30.0, show_default=True, type=click.FloatRange(1, 600), help="Of load.")
@click.option("--kills", default=6, show_default=True, type=click.IntRange(0, 100), help="Workers, service, driver.")
@click.option("--rate", default=2_000, show_default=True, type=click.IntRange(1, 100_000), help="Clicks a second.")
@click.option("--keep", is_flag=True, help="Keep logs and data of a run that was right, too.")
def main(minutes: float, kills: int, rate: int, keep: bool) -> None:
    """Run a job with timers, sessions and a broadcast under load, kill its processes, and see what grows.

    Exits with 0 only if nothing was lost, duplicated or out of order, and the processes of no role take over 10 % more
    memory in the end than after 5 minutes. The last line is JSON.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    show = Show()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with (FOLDER / "timeline.log").open("w") as timeline:

        def say(what: str) -> None:
            timeline.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {what}\n")
            timeline.flush()
            show.step(what)

        soak = Soak(minutes, kills, rate, FOLDER.absolute(), say=say, progress=show.progress)
        try:
            soak.run()
        except KeyboardInterrupt:
            soak.result.failures.append("interrupted")
    show.hide()
    if soak.right and not keep:
        shutil.rmtree(FOLDER, ignore_errors=True)
    elif not soak.right:
        show.say(f"\nlogs and data are in {FOLDER}; what was done when stands in {FOLDER}/timeline.log")
    show.say(soak.line())
    sys.exit(0 if soak.right else 1)


if __name__ == "__main__":
    main()
