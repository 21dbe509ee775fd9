package io.lowtide;

import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Breaks off a blocking call that takes too long, by an action that makes it fail. */
final class Deadline implements AutoCloseable {
  private static final ScheduledThreadPoolExecutor CLOCK =
      new ScheduledThreadPoolExecutor(
          1,
          task -> {
            Thread thread = new Thread(task, "lowtide-deadline");
            thread.setDaemon(true);
            return thread;
          });

  static {
    // What was closed in time must not be kept, with all it holds, until its time is over.
    CLOCK.setRemoveOnCancelPolicy(true);
  }

  private final long limitMs;
  private final ScheduledFuture<?> pending;
  private volatile boolean passed;

  Deadline(long limitMs, Runnable breakOff) {
    this.limitMs = limitMs;
    this.pending =
        CLOCK.schedule(
            () -> {
              passed = true;
              breakOff.run();
            },
            limitMs,
            TimeUnit.MILLISECONDS);
  }

  /** Whether the time is over and the action was run. */
  boolean passed() {
    return passed;
  }

  @Override
  public void close() {
    pending.cancel(false);
  }
}
