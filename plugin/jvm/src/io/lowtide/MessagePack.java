package io.lowtide;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** Writes values as msgpack, one behind the other, into a buffer that grows. */
final class MessagePack {
  private static final byte NIL = (byte) 0xc0;
  private static final byte BIN_8 = (byte) 0xc4;
  private static final byte BIN_16 = (byte) 0xc5;
  private static final byte BIN_32 = (byte) 0xc6;
  private static final byte INT_64 = (byte) 0xd3;
  private static final byte STR_32 = (byte) 0xdb;
  private static final byte ARRAY_32 = (byte) 0xdd;
  /** The head of a value at most: its kind, and a number or a length. */
  static final int HEAD_BYTES = 9;

  private ByteBuffer out = ByteBuffer.allocate(1 << 12);

  /** Begins an array: as many values as this are its elements. */
  void array(int length) {
    room(HEAD_BYTES).put(ARRAY_32).putInt(length);
  }

  void integer(long number) {
    room(HEAD_BYTES).put(INT_64).putLong(number);
  }

  void text(String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    room(HEAD_BYTES + bytes.length).put(STR_32).putInt(bytes.length).put(bytes);
  }

  void nil() {
    room(HEAD_BYTES).put(NIL);
  }

  /** Bytes, or nil for null. */
  void bytes(byte[] bytes) {
    if (bytes == null) {
      nil();
      return;
    }
    room(HEAD_BYTES + bytes.length);
    if (bytes.length < 1 << 8) {
      out.put(BIN_8).put((byte) bytes.length);
    } else if (bytes.length < 1 << 16) {
      out.put(BIN_16).putShort((short) bytes.length);
    } else {
      out.put(BIN_32).putInt(bytes.length);
    }
    out.put(bytes);
  }

  /** What was written since the last call; valid until the next value. */
  ByteBuffer take() {
    ByteBuffer taken = out.duplicate().flip();
    out.clear();
    return taken;
  }

  private ByteBuffer room(int needed) {
    if (out.remaining() < needed) {
      out = ByteBuffer.allocate(Math.max(2 * out.capacity(), out.position() + needed)).put(out.flip());
    }
    return out;
  }
}
