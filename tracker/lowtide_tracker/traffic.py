"""The traffic over the tracker's connections: messages, bytes, and what was in them. It only grows."""

from msgspec import Struct


class Traffic(Struct, gc=False):
    """Counts of one connection's end, or of all of a server; *in* and *out* are as this end sees them.

    Bytes are those of the stream, handshakes included. Counting costs a few additions per message, none per ack.
    """

    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    flushes: int = 0
    """Of the messages, in or out, those that are a `Flush` or an `Absolute`; each counts as often as it was sent."""
    acks: int = 0
    """Entries of these flushes: (segment, tick, value)."""
    notices: int = 0
    """Of the messages, in or out, those that are a `Notice`."""

    def add(self, other: "Traffic") -> None:
        """Count what another has counted as well."""
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.messages_out += other.messages_out
        self.bytes_out += other.bytes_out
        self.flushes += other.flushes
        self.acks += other.acks
        self.notices += other.notices
