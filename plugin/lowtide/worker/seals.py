"""Seals frames from worker to worker: Spark's streaming shuffle authenticates nobody and carries bytes in the clear.

A sealed frame is::

    0xc1 | version u8 | sender u32 | number u64 | AES-256-GCM of the frame, with its tag      big-endian

0xc1 begins no msgpack value, so neither kind of frame is taken for the other. Sender and number are the nonce: no
sender gives a target two frames of one number (R10). The key belongs to one target in one life, so a frame opens
nowhere else; one that comes twice or too late is found by its number.
"""

from __future__ import annotations

import struct
from typing import Any

from lowtide.errors import LifeEnded

_HEAD = struct.Struct("!BBIQ")
_SEALED, _VERSION = 0xC1, 1
_NONCE = slice(2, _HEAD.size)
_KEY_BYTES = 32
WAY_OUT = (
    "find out who else reaches the executors' ports, then start the job again: nothing of it was processed; "
    "report it if nobody does"
)


class Seals:
    """One worker's keys: it opens what is for it, and seals what is for workers of the next level.

    Args:
        secret: The job's secret.
        life: The job's name, its id and the life's number: no two lives derive the same keys.
        level: The worker's level.
        place: Its index among the level's workers.
        name: Its name, for errors.
    """

    def __init__(self, secret: bytes, life: tuple[str, str, int], level: int, place: int, name: str) -> None:
        # Only where frames are sealed: it takes a worker some milliseconds to import.
        from cryptography.exceptions import InvalidTag

        self._secret = secret
        self._life = life
        self._level = level
        self._name = name
        self._wrong = InvalidTag
        self._own = self._cipher(level, place)
        self._to: dict[int, Any] = {}

    def seal(self, target: int, sender: int, number: int, frame: bytes) -> bytes:
        """Return a frame as only its target can open it.

        Args:
            target: Its index among the next level's workers.
            sender: The number of the worker that sends it.
            number: The frame's number among those of this sender to this target.
            frame: The frame.
        """
        cipher = self._to.get(target)
        if cipher is None:
            cipher = self._to[target] = self._cipher(self._level + 1, target)
        head = _HEAD.pack(_SEALED, _VERSION, sender, number)
        sealed: bytes = cipher.encrypt(head[_NONCE], frame, head)
        return head + sealed

    def open(self, data: bytes) -> bytes:
        """Return the frame within.

        Raises:
            LifeEnded: it is in the clear, was changed, or was sealed for another worker or life.
        """
        if len(data) < _HEAD.size or data[0] != _SEALED:
            raise LifeEnded(f"a frame in the clear reached worker {self._name}: frames are sealed", way_out=WAY_OUT)
        head = data[: _HEAD.size]
        _, version, sender, number = _HEAD.unpack(head)
        if version != _VERSION:
            raise LifeEnded(
                f"a frame of worker number {sender} to worker {self._name} is sealed in version {version}, "
                f"not {_VERSION}",
                way_out="give every executor the driver's version of Lowtide, then start the job again",
            )
        try:
            frame: bytes = self._own.decrypt(head[_NONCE], data[_HEAD.size :], head)
        except self._wrong:
            raise LifeEnded(
                f"frame {number} of worker number {sender} to worker {self._name} cannot be opened: it was changed on "
                "its way, or made by somebody who does not have the job's secret",
                way_out=WAY_OUT,
            ) from None
        return frame

    def _cipher(self, level: int, place: int) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        job, job_id, incarnation = self._life
        # Names have any length, so each part says its own.
        parts = [b"lowtide frames", job.encode(), job_id.encode(), b"%d" % incarnation, b"%d" % level, b"%d" % place]
        info = b"".join([struct.pack("!I", len(part)) + part for part in parts])
        return AESGCM(HKDF(SHA256(), _KEY_BYTES, salt=None, info=info).derive(self._secret))
