"""`make chaos`: a seeded schedule of faults; the last line is JSON."""

from __future__ import annotations

import secrets
import shutil
import signal
import sys
import time
from pathlib import Path

import click
from demo.showing import Show

from .cutting import may_cut
from .run import Run
from .schedule import ALONE, CALLING, KILLS, OTHERS, WAITED, Fault, schedule
from .stage import Play
from .verdict import Result

FOLDER = Path(".lowtide/chaos")


@click.command(context_settings={"max_content_width": 100})
@click.option("--kills", default=20, show_default=True, type=click.IntRange(0, 500), help="Processes to kill.")
@click.option("--others", type=click.IntRange(0, 500), help="Faults besides; one of each kind for 20 kills.")
@click.option("--seed", type=int, help="Of the schedule; without it, another one each time.")
@click.option("--only", multiple=True, type=click.Choice([*KILLS, *OTHERS]), help="No other kinds; may be repeated.")
@click.option("--cluster", is_flag=True, help="Two executors in processes of their own.")
@click.option("--calls", is_flag=True, help="The flow asks an HTTP service about every order.")
@click.option("--shards", default=1, show_default=True, type=click.IntRange(1, 64), help="Of the job's tracker.")
@click.option(
    "--standbys", default=0, show_default=True, type=click.IntRange(0, 4), help="Programs that wait to take over."
)
@click.option("--within-s", default=3600.0, show_default=True, help="Begin no fault after so long; then it has failed.")
@click.option("--keep", is_flag=True, help="Keep logs and data of a run that was right, too.")
@click.option("--list", "listed", is_flag=True, help="Print the schedule alone.")
def main(
    kills: int,
    others: int | None,
    seed: int | None,
    only: tuple[str, ...],
    cluster: bool,
    calls: bool,
    shards: int,
    standbys: int,
    within_s: float,
    keep: bool,
    listed: bool,
) -> None:
    """Run a job under load on real Kafka, ZooKeeper and S3, break things by a schedule, and judge every byte.

    Exits with 0 only if nothing was lost, duplicated or out of order, over at least one recovery. The last line is
    JSON.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    if not cluster and any("executor" in kind for kind in only):
        raise click.UsageError("one JVM that is all of Spark has no executor of its own: add --cluster")
    if any(kind in (ALONE if standbys else WAITED) for kind in only):
        raise click.UsageError(f"only with standbys: {', '.join(WAITED)}; only without: {', '.join(sorted(ALONE))}")
    if not calls and any(kind in CALLING for kind in only):
        raise click.UsageError("only a flow with a call asks a service: add --calls")
    faults = schedule(seed, kills, others, cluster=cluster, calls=calls, standbys=standbys > 0, only=only)
    show = Show()
    show.say(f"seed {seed}: {len(faults)} faults, {sum(fault.kills for fault in faults)} kills")
    if listed:
        for number, fault in enumerate(faults, 1):
            show.say(f"{number:4}  after {fault.after_s:4.1f} s  {fault}")
        return
    left_out = [] if may_cut() else [fault for fault in faults if fault.kind == "executor-without-broker"]
    chosen = [each for each in faults if each not in left_out]
    result = _done(chosen, show, cluster=cluster, calls=calls, shards=shards, standbys=standbys, within_s=within_s)
    show.hide()
    if result.right and not keep:
        shutil.rmtree(FOLDER, ignore_errors=True)
    elif not result.right:
        again = [f"--others {others}" if others is not None else "", *(f"--only {kind}" for kind in only)]
        again += [
            "--cluster" if cluster else "",
            "--calls" if calls else "",
            f"--shards {shards}" if shards > 1 else "",
            f"--standbys {standbys}" if standbys else "",
        ]
        arguments = " ".join(filter(None, again))
        show.say(
            f"\nlogs and data are in {FOLDER}; what was done when stands in {FOLDER}/timeline.log\n"
            f"the same schedule again: make chaos KILLS={kills} SEED={seed}" + f" ARGS='{arguments}'" * bool(arguments)
        )
    if left_out:
        show.say(f"left out, as only root may cut connections: {', '.join(map(str, left_out))}")
    show.say(result.line())
    sys.exit(0 if result.right else 1)


def _done(
    faults: list[Fault], show: Show, *, cluster: bool, calls: bool, shards: int, standbys: int, within_s: float
) -> Result:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with (FOLDER / "timeline.log").open("w") as timeline:

        def say(what: str) -> None:
            timeline.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {what}\n")
            timeline.flush()
            show.step(what)

        run = Run(
            faults,
            FOLDER.absolute(),
            cluster=cluster,
            shards=shards,
            standbys=standbys,
            within_s=within_s,
            say=say,
            progress=show.progress,
            play=Play(asks=calls),
        )
        try:
            run.run()
        except KeyboardInterrupt:
            run.result.failures.append("interrupted")
        return run.result


if __name__ == "__main__":
    main()
