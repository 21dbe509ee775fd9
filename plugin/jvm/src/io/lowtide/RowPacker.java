package io.lowtide;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.spark.sql.Row;

/**
 * The feed of level 0: packs Kafka rows. One message holds records of one source partition, as one msgpack array:
 *
 * <pre>
 * [time of the first row, time of packing (both ns since 1970), topic, partition,
 *  [offset, ...], [timestamp in ms, ...], [key or nil, ...], [value or nil, ...], [headers, ...] or nil]
 * </pre>
 *
 * <p>Numbers are int 64, the topic is str, keys, values and headers are bin. A record's headers are {@code u16 count},
 * then per header {@code i32 length | name | i32 length (-1: null) | value}, little-endian, and empty where the record
 * has none; nil stands for all of them where no record has any.
 *
 * <p>A row that comes while the worker is free goes out at once. Those that come while it works gather and go out
 * together as soon as it answers: under load messages grow instead of queueing, and what a message costs is shared by
 * more records. The feeder writes what it finds the worker free for, and what is full; what has gathered when an answer
 * comes is written by the thread that reads it, as the feeder may be waiting in Spark's iterator for long.
 *
 * <p>A worker whose front is stopped leaves messages unanswered; then no more rows are pulled, until it answers or the
 * epoch's time is over: an epoch's end must not wait for a front (R8). Spark's reader ends by itself when its time is
 * over, so the little that is pulled after that is bounded.
 */
final class RowPacker implements Feed {
  /** More messages than these are not left unanswered: what is under way must be enough to keep the worker busy. */
  private static final int MAX_UNANSWERED = 4;
  private static final long LOOK_NANOS = 2_000_000;
  /** What a row takes in a message beside its bytes: the heads of five values. */
  private static final int ROW_BYTES = 5 * MessagePack.HEAD_BYTES;
  /** What a message takes beside its rows, the topic's name of up to 249 bytes included. */
  private static final int MESSAGE_BYTES = 512;
  private static final byte[] NONE = {};

  private final Iterator<Row> rows;
  private final int maxRows;
  private final int maxBytes;
  private final long epochEndNanos;
  private Channel channel;
  private String topic;
  private int partition;
  private int fullBytes;
  /** Who waits for answers, if anybody. */
  private volatile Thread feeder;
  /** Messages the worker has not dealt with yet. Counted before they are written, as its answer may be quick. */
  private final AtomicInteger unanswered = new AtomicInteger();

  /** Of what follows, and of the right to write to the channel. */
  private final ReentrantLock lock = new ReentrantLock();
  private final List<Row> gathered = new ArrayList<>();
  private final List<byte[]> headers = new ArrayList<>();
  private final MessagePack packed = new MessagePack();
  private int gatheredBytes;
  private boolean withHeaders;
  private long firstTime;
  /** How many rows have gathered, for a look without the lock. */
  private volatile int waiting;

  RowPacker(Iterator<Row> rows, int maxRows, int maxBytes, long epochMillis) {
    this.epochEndNanos = System.nanoTime() + epochMillis * 1_000_000;
    this.rows = rows;
    this.maxRows = maxRows;
    this.maxBytes = maxBytes;
  }

  @Override
  public void run(Opener opener) throws IOException {
    // A worker may have frames to send though its partition has no rows in this epoch: it is attached at once.
    String seat = opener.seat();
    if (!seat.isEmpty()) {
      channel = opener.open(seat);
    }
    if (!rows.hasNext()) {
      return;
    }
    Row first = rows.next();
    topic = first.getString(0);
    partition = first.getInt(1);
    String name = topic + "-" + partition;
    if (channel == null) {
      channel = opener.open(name);
    } else if (!name.equals(seat)) {
      throw new IOException(
          "Spark gave the rows of " + name + " to a task that was attached to the worker of " + seat
              + ", as the one of its index was in the epoch before; start the job again");
    }
    fullBytes = Math.min(maxBytes, channel.takesAtOnce());
    feeder = Thread.currentThread();
    add(first);
    while (rows.hasNext()) {
      awaitAnswers();
      add(rows.next());
    }
    lock.lock();
    try {
      write();
    } finally {
      lock.unlock();
    }
  }

  /** Waits while the worker owes too many answers and the epoch's time is not over. */
  private void awaitAnswers() {
    while (unanswered.get() >= MAX_UNANSWERED && System.nanoTime() - epochEndNanos < 0) {
      LockSupport.parkNanos(this, LOOK_NANOS);
      if (Thread.currentThread().isInterrupted()) {
        return; // The task is being closed; Spark's reader meets the interrupt.
      }
    }
  }

  private void add(Row row) throws IOException {
    if (row.getInt(1) != partition || !row.getString(0).equals(topic)) {
      throw new IllegalStateException(
          "a task of level 0 got rows of " + topic + "-" + partition + " and of " + row.getString(0) + "-"
              + row.getInt(1) + "; the Kafka source's minPartitions and maxRecordsPerPartition must not be set");
    }
    byte[] packedHeaders = row.length() > 6 && !row.isNullAt(6) ? pack(row.getList(6)) : NONE;
    int size = ROW_BYTES + length(row, 4) + length(row, 5) + packedHeaders.length;
    lock.lock();
    try {
      if (gatheredBytes + size > fullBytes) {
        write();
      }
      if (gathered.isEmpty()) {
        firstTime = now();
        gatheredBytes = MESSAGE_BYTES;
      }
      gathered.add(row);
      headers.add(packedHeaders);
      withHeaders |= packedHeaders.length > 0;
      gatheredBytes += size;
      waiting = gathered.size();
      if (gathered.size() == maxRows || gatheredBytes >= fullBytes) {
        write();
      }
    } finally {
      lock.unlock();
    }
    writeIfFree();
  }

  private static int length(Row row, int column) {
    return row.isNullAt(column) ? 0 : ((byte[]) row.get(column)).length;
  }

  @Override
  public void taken() throws IOException {
    if (unanswered.getAndDecrement() == MAX_UNANSWERED) {
      LockSupport.unpark(feeder);
    }
    writeIfFree();
  }

  /**
   * Writes what has gathered if the worker is free. Whoever adds a row or takes an answer calls this afterwards, so no
   * row stays behind: if the lock is taken, the other thread is before its own call of this, or writes all there is.
   *
   * <p>For the thread that reads the worker's answers it may never wait for the worker, which does not read either while
   * too much of its output waits for that thread. So it does not wait for the lock, which the feeder holds while it
   * writes; and its own write goes through at once. For the worker is free: it has taken all that was ever written to it,
   * so that nothing is left in the socket's buffer, and what gathers is never more than that buffer takes
   * ({@link Channel#takesAtOnce}): a larger record fills the message it comes to, which the feeder then writes itself.
   */
  private void writeIfFree() throws IOException {
    while (waiting > 0 && unanswered.get() == 0 && lock.tryLock()) {
      try {
        if (unanswered.get() == 0) {
          write();
        }
      } finally {
        lock.unlock();
      }
    }
  }

  private void write() throws IOException {
    if (gathered.isEmpty()) {
      return;
    }
    packed.array(9);
    packed.integer(firstTime);
    packed.integer(now());
    packed.text(topic);
    packed.integer(partition);
    for (int column = 2; column < 6; column++) {
      packed.array(gathered.size());
      for (Row row : gathered) {
        if (column < 4) {
          packed.integer(row.getLong(column));
        } else {
          packed.bytes((byte[]) row.get(column));
        }
      }
    }
    if (withHeaders) {
      packed.array(headers.size());
      headers.forEach(packed::bytes);
    } else {
      packed.nil();
    }
    gathered.clear();
    headers.clear();
    withHeaders = false;
    gatheredBytes = waiting = 0;
    unanswered.incrementAndGet();
    channel.write(Kind.ROWS, packed.take());
  }

  /** A record's headers as the worker opens them. */
  private static byte[] pack(List<Row> headers) {
    if (headers.isEmpty()) {
      return NONE;
    }
    List<byte[]> parts = new ArrayList<>();
    int size = Short.BYTES;
    for (Row header : headers) {
      byte[] name = header.getString(0).getBytes(StandardCharsets.UTF_8);
      parts.add(name);
      parts.add((byte[]) header.get(1));
      size += 2 * Integer.BYTES + name.length + length(header, 1);
    }
    ByteBuffer blob = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN).putShort((short) headers.size());
    for (byte[] part : parts) {
      if (part == null) {
        blob.putInt(-1);
      } else {
        blob.putInt(part.length).put(part);
      }
    }
    return blob.array();
  }

  private static long now() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000_000L + now.getNano();
  }
}
