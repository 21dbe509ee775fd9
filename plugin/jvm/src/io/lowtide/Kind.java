package io.lowtide;

/** The first byte of a message on a {@link Channel}; the same numbers stand in {@code lowtide/process/wire.py}. */
final class Kind {
  static final byte ASK = 1;
  static final byte ATTACH = 2;
  /** To a worker of level 0: records of one source partition, packed by {@link RowPacker}. */
  static final byte ROWS = 3;
  /** To a worker of a later level: a frame, unopened. */
  static final byte FRAME = 4;
  /** To a worker: this epoch's input is over. */
  static final byte END = 5;
  /** From a worker: {@code i32 target | frame}, to be taken to a worker of the next level. */
  static final byte OUT = 6;
  /** From a worker: this epoch's output is out. */
  static final byte ENDED = 7;
  /** From a worker: what went wrong, as text. */
  static final byte FAILED = 8;

  /** From a worker of level 0: it is free for the next message of kind ROWS. */
  static final byte TAKEN = 10;

  private Kind() {}
}
