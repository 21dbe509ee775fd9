"""Calls a flow's functions with each commit: at least once, in order, and not before it is durable.

The commits that a function has heard of are kept in ZooKeeper, so those of an earlier life, or of Airflow while the job
was dead, are told by the next one. A function that raises undoes nothing: it is called again with the same commit.
"""

from __future__ import annotations

import logging

from lowtide.flow.steps.hooks import OF_THE_FLOW, Hooks
from lowtide.status.subscriptions import news_of
from lowtide_snapshots.commits.log import CommitLog
from lowtide_snapshots.job.store import JobStore

LOG = logging.getLogger(__name__)


def tell(hooks: Hooks, store: JobStore, incarnation: int, log: CommitLog) -> bool:
    """Call each function with the commits that it has not heard of, ascending; note each as soon as it has returned.

    Args:
        hooks: The functions.
        store: The place that keeps who has heard of what.
        incarnation: The life's number.
        log: The job's commits.

    Returns:
        False if one has raised: it hears of no later commit before this one.

    Raises:
        Fenced: another life has begun.
        SnapshotsError: ZooKeeper does not answer.
    """
    commits = log.commits()
    there, heard = {commit.id for commit in commits}, store.told()
    told = {name: there & set(heard.get(name, ())) for name in hooks}
    done = True
    for name, hook in hooks.items():
        what = "on_commit of the flow" if name == OF_THE_FLOW else f'on_commit of sink "{name}"'
        for commit in commits:
            if commit.id in told[name]:
                continue
            try:
                hook(news_of(commit))
            except (Exception, SystemExit):
                LOG.exception("%s failed at commit %s, which stands; it is called again", what, commit.id)
                done = False
                break
            told[name].add(commit.id)
            store.set_told(incarnation, {each: sorted(ids) for each, ids in told.items()})
    return done
