package io.lowtide;

import java.io.IOException;

/** What a task reads from Spark and writes to its worker, in a thread of its own. */
interface Feed {
  /** Opens the connection to the worker of this name; at most once in a task. */
  interface Opener {
    Channel open(String worker) throws IOException;

    /** The worker that this task is for, where that is known before any input; empty if it is not. */
    String seat() throws IOException;
  }

  /** Returns when Spark's input is over; what it took from it has then been written. */
  void run(Opener opener) throws IOException;

  /** A message was dealt with; called by the thread that reads the worker's answers, so must not wait for the worker. */
  default void taken() throws IOException {}
}
