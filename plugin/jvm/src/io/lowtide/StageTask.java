package io.lowtide;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A task at work: one thread feeds the worker from Spark's iterator, the task's own thread drains it. A slow worker
 * blocks the feeder and so Spark's input; a slow consumer blocks the drain and so the worker.
 */
final class StageTask implements Iterator<Row> {
  private static final Logger LOG = LoggerFactory.getLogger(StageTask.class);
  private static final long JOIN_MS = 10_000;

  private final TaskContext context;
  private final ExecutorSide side;
  private final Attachment attachment;
  private final CompletableFuture<Channel> channel = new CompletableFuture<>();
  private volatile Throwable sourceError;
  private volatile boolean closing;
  private volatile Feed feed;
  private String worker = "";
  private Row next;
  private boolean ended;

  StageTask(TaskContext context, ExecutorSide side, Attachment attachment) {
    this.context = context;
    this.side = side;
    this.attachment = attachment;
  }

  void start(Feed input) {
    feed = input;
    Thread feeder = new Thread(this::feed, "lowtide-feed-" + attachment.level() + "-" + context.partitionId());
    feeder.setDaemon(true);
    context.addTaskCompletionListener(
        (org.apache.spark.util.TaskCompletionListener) done -> close(feeder));
    feeder.start();
  }

  private void feed() {
    TaskContext$.MODULE$.setTaskContext(context);
    Channel open = null;
    try {
      feed.run(
          new Feed.Opener() {
            @Override
            public Channel open(String name) throws IOException {
              return StageTask.this.open(name);
            }

            @Override
            public String seat() throws IOException {
              return side.seat(attachment);
            }
          });
      open = channel.getNow(null);
      if (open == null) {
        channel.complete(null);
      } else {
        open.write(Kind.END, ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(attachment.epoch()).flip());
      }
    } catch (Throwable error) {
      broken(error);
    } finally {
      TaskContext$.MODULE$.unset();
    }
  }

  private Channel open(String name) throws IOException {
    worker = attachment.level() + "/" + name;
    Channel opened = side.attach(worker, attachment);
    channel.complete(opened);
    if (closing) {
      opened.close(); // The task ended meanwhile and may have looked for a channel before there was one.
    }
    return opened;
  }

  private void broken(Throwable error) {
    if (closing) {
      return;
    }
    if (error instanceof Channel.Broken) {
      // The worker's own last words are still to be read; the drain meets them, or the end of the stream.
      LOG.info("{}", error.toString());
      return;
    }
    sourceError = error;
    if (!channel.completeExceptionally(error)) {
      channel.join().close();
    }
  }

  private void close(Thread feeder) {
    // A killed task's thread comes here interrupted; it must wait for the feeder all the same, as Spark then takes back
    // what the feeder reads from.
    boolean interrupted = Thread.interrupted();
    closing = true;
    feeder.interrupt();
    Channel open = channel.isCompletedExceptionally() ? null : channel.getNow(null);
    if (open != null) {
      open.close();
    }
    try {
      feeder.join(JOIN_MS);
      if (feeder.isAlive()) {
        LOG.warn("the feeder of worker {} still reads Spark's input {} ms after its task's end", worker, JOIN_MS);
      }
    } catch (InterruptedException stop) {
      interrupted = true;
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  @Override
  public boolean hasNext() {
    if (next == null && !ended) {
      try {
        advance();
      } catch (IOException | ExecutionException | RuntimeException error) {
        throw failure(error);
      } catch (InterruptedException stop) {
        context.killTaskIfInterrupted();
        throw new IllegalStateException("the task was interrupted", stop);
      }
    }
    return next != null;
  }

  private void advance() throws IOException, InterruptedException, ExecutionException {
    Channel open = channel.get();
    ended = open == null;
    while (next == null && !ended) {
      answer(open);
    }
  }

  private void answer(Channel from) throws IOException {
    byte kind = from.next();
    switch (kind) {
      case Kind.OUT -> {
        int target = from.readInt();
        next = RowFactory.create(target, from.readRest());
      }
      case Kind.TAKEN -> {
        from.readRest();
        try {
          feed.taken();
        } catch (Channel.Broken gone) {
          broken(gone);
        }
      }
      case Kind.ENDED -> {
        from.readRest();
        ended = true;
      }
      case Kind.FAILED -> throw Failure.read(from.readText());
      default -> throw new IOException("worker " + worker + " sent a message of unknown kind " + kind);
    }
  }

  private RuntimeException failure(Exception error) {
    context.killTaskIfInterrupted();
    Throwable cause = sourceError != null ? sourceError : error;
    JsonNode told = Failure.causeOf(cause);
    side.fail(attachment, told);
    return new IllegalStateException(Failure.text(told), cause);
  }

  @Override
  public Row next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    Row row = next;
    next = null;
    return row;
  }
}
