package io.lowtide;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** Reads msgpack's values one behind the other: arrays, integers, booleans, texts, bytes and nil. */
final class Unpacker {
  private static final int NIL = 0xc0;
  private static final int TRUE = 0xc3;

  private final ByteBuffer in;

  Unpacker(ByteBuffer in) {
    this.in = in;
  }

  /** The number of an array's elements, which follow; 0 for nil. */
  int array() {
    int kind = in.get() & 0xff;
    if (kind >= 0x90 && kind <= 0x9f) {
      return kind & 0x0f;
    }
    return switch (kind) {
      case NIL -> 0;
      case 0xdc -> in.getShort() & 0xffff;
      case 0xdd -> in.getInt();
      default -> throw unknown("an array", kind);
    };
  }

  long number() {
    int kind = in.get() & 0xff;
    if (kind < 0x80 || kind >= 0xe0) {
      return (byte) kind;
    }
    return switch (kind) {
      case 0xcc -> in.get() & 0xff;
      case 0xcd -> in.getShort() & 0xffff;
      case 0xce -> in.getInt() & 0xffffffffL;
      case 0xcf, 0xd3 -> in.getLong();
      case 0xd0 -> in.get();
      case 0xd1 -> in.getShort();
      case 0xd2 -> in.getInt();
      default -> throw unknown("a number", kind);
    };
  }

  boolean flag() {
    return (in.get() & 0xff) == TRUE;
  }

  String text() {
    return new String(bytes(), StandardCharsets.UTF_8);
  }

  /** The bytes of a text or of bytes; null for nil. */
  byte[] bytes() {
    int kind = in.get() & 0xff;
    if (kind == NIL) {
      return null;
    }
    byte[] bytes = new byte[length(kind)];
    in.get(bytes);
    return bytes;
  }

  private int length(int kind) {
    if (kind >= 0xa0 && kind <= 0xbf) {
      return kind & 0x1f;
    }
    return switch (kind) {
      case 0xc4, 0xd9 -> in.get() & 0xff;
      case 0xc5, 0xda -> in.getShort() & 0xffff;
      case 0xc6, 0xdb -> in.getInt();
      default -> throw unknown("bytes", kind);
    };
  }

  private static IllegalStateException unknown(String wanted, int kind) {
    return new IllegalStateException("msgpack has " + Integer.toHexString(kind) + " where " + wanted + " is due");
  }
}
