"""The store of snapshots."""

from lowtide.conf.store_access import store_setting
from lowtide.doctor.check import Answer, Surroundings
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.stores import open_store


def store(surroundings: Surroundings) -> Answer:
    """It can be reached, written to, read and deleted from."""
    setting = store_setting(surroundings.conf.snapshots)
    try:
        opened = open_store(setting)
        try:
            opened.check()
        finally:
            opened.close()
    except SnapshotsError as error:
        where = f" ({error.where})" if error.where else ""
        return Answer("fail", f"{error.what}{where}", error.way_out or "correct [snapshots] in the conf")
    return Answer("ok", f"snapshots can be written to {opened.where}")
