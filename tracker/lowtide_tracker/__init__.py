"""Lowtide's protocol between processes. So far: the handshake that opens every connection."""

from lowtide_tracker.handshake import ClientHandshake, HandshakeError, ServerHandshake

__all__ = ["ClientHandshake", "HandshakeError", "ServerHandshake"]
