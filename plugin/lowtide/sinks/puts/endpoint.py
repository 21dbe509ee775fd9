"""Records that a flow puts into a store by key: a frozen value, no connection and no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lowtide.errors import FlowError
from lowtide.flow.formats.endpoints import KAFKA
from lowtide.flow.formats.formats import JsonFormat
from lowtide.flow.formats.writable import Writable
from lowtide.flow.site import user_site
from lowtide.sinks.puts.contract import PutClient, PutStore, SharedNames

if TYPE_CHECKING:
    from lowtide.conf import Conf
    from lowtide.sinks.staged.contract import Carriage, Carrier

MARK_EVERY_MS = 1_000
KEY_KINDS = ("str", "int", "UUID")


@dataclass(frozen=True, slots=True)
class Puts:
    """Records, by key, in a store; `lt.puts` makes one.

    Attributes:
        name: What the store calls the records: an index, a folder, a prefix of keys.
        record: The dataclass.
        key: The field that is the key.
        put: The store.
        deleted: The field that is true for a record that deletes; None if none does.
        eventual: True if an older record may show for a moment.
    """

    name: str
    record: type
    key: str
    put: PutStore | PutClient
    deleted: str | None = None
    eventual: bool = False
    staged: ClassVar[bool] = True
    store: ClassVar[str] = KAFKA
    by_key: ClassVar[bool] = True

    @property
    def place(self) -> str:
        """The name, in its store."""
        return f'"{self.name}" in {self.put}'

    @property
    def form(self) -> str:
        """JSON."""
        return str(JsonFormat(self.record))

    @property
    def key_column(self) -> str:
        """The key."""
        return self.key

    @property
    def writable(self) -> Writable:
        """Records that JSON can write."""
        return JsonFormat(self.record).writable

    @property
    def mark_every_ms(self) -> int:
        """A second."""
        return MARK_EVERY_MS

    @property
    def compares(self) -> bool:
        """True if the store refuses older versions, or says so."""
        return bool(getattr(self.put, "compares", False))

    def json_name(self, field: str) -> str:
        """Return the name of a field in the JSON."""
        from lowtide.flow.schema.marks import fields_of

        return next(each.alias or field for each in fields_of(self.record) if each.name == field)

    def faults(self) -> Sequence[str]:
        """Return what is wrong with the key, with the field that deletes, or with fields that are not in the JSON."""
        from lowtide.flow.schema.marks import fields_of
        from lowtide.flow.schema.schema import schema_of

        kinds, name = schema_of(self.record).kinds, self.record.__qualname__
        placed = {field.name: field.placed for field in fields_of(self.record) if field.placed is not None}
        found = [
            f"{name}.{field} is marked {type(mark).__name__}, which only a message has"
            for field, mark in placed.items()
        ]
        kind, gone = kinds.get(self.key), None if self.deleted is None else kinds.get(self.deleted)
        if kind is None:
            found.append(f"{name} has no field {self.key!r}, which should be the key")
        elif kind.name not in KEY_KINDS:
            found.append(f"a key must be str, int or UUID, but {self.key!r} is {kind.name}")
        if self.deleted is not None and (gone is None or gone.name != "bool"):
            found.append(f"deleted= names a bool of {name}, found {self.deleted!r}")
        return found

    def meets(self, other: object) -> bool:
        """Return whether a put of one may have the address of one of the other, as the store says."""
        return (
            isinstance(other, Puts)
            and isinstance(self.put, SharedNames)
            and str(other.put) == str(self.put)
            and self.put.meets(self.name, other.name)
        )

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return what the store's client needs, secrets included, and for how long it may fail (errors: ConfError)."""
        store = self.put.settings(conf) if isinstance(self.put, PutStore) else {}
        return {**store, "limit_s": conf.kafka.delivery_limit_ms / 1000}

    def carrier(self, carriage: Carriage) -> Carrier:
        """Return what takes the records to the store."""
        from lowtide.sinks.puts.carrier import PutsCarrier

        deleted = None if self.deleted is None else self.json_name(self.deleted)
        return PutsCarrier(carriage, self.name, self.put, deleted)

    def __str__(self) -> str:
        back = ", may go back for a moment" if self.eventual else ""
        return f'puts into {self.place} as {self.form} of {self.record.__qualname__}, by key "{self.key}"{back}'


def puts(
    name: str,
    record: type[Any],
    *,
    key: str,
    put: PutStore | PutClient,
    deleted: str | None = None,
    eventual: bool = False,
) -> Puts:
    """Name records that a store without transactions has by key: the newest of each key, also after any failure.

    Args:
        name: What the store calls them: Elasticsearch's index, the folder of an URL, what Redis' keys begin with.
        record: The dataclass, which the store gets as JSON.
        key: The field that tells records apart: str, int or UUID.
        put: `lt.redis()`, `lt.elasticsearch()`, `lt.http()`, or an object of a class with a method `put`.
        deleted: A bool field: a record with it true deletes its key. The JSON has no such field.
        eventual: Say True if the store cannot refuse a record that is older than what it has: after a failure an older
            one may show for a moment, and after the last record of a key for good.

    Raises:
        FlowError: `put` is not a store, or cannot refuse older records and `eventual` is not said.

    Example:
        >>> orders.write("found", lt.puts("orders", Order, key="user", put=lt.elasticsearch()))
        >>> flow.run_locally(orders=[Order("ada", 5)])
        {'found': [Order(user='ada', amount=5)]}
    """
    site = str(user_site())
    if not isinstance(name, str) or not name:
        raise FlowError(f"puts takes a name, found {name!r}", where=site)
    if not hasattr(record, "__dataclass_fields__") or not callable(record):
        way_out = f"write lt.puts({name!r}, Order, ...)"
        raise FlowError(f"puts takes the dataclass of its records, found {record!r}", where=site, way_out=way_out)
    if isinstance(put, type) or not (isinstance(put, PutStore) or callable(getattr(put, "put", None))):
        way_out = "write lt.redis(), lt.elasticsearch(), lt.http(), or an object whose class has a method put(puts)"
        raise FlowError(f"put= takes a store, found {put!r}", where=site, way_out=way_out)
    sink = Puts(name, record, key, put, deleted, eventual)
    if not (eventual or sink.compares):
        raise FlowError(
            f"{put} may not refuse a record that is older than what it has",
            where=site,
            way_out="say eventual=True if readers may see an older one after a failure, or compares=True of a store "
            "that compares the version",
        )
    return sink
