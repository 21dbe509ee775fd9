package io.lowtide;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.sql.Row;

/**
 * The feed of level 0: packs Kafka rows column-wise. One message holds records of one source partition:
 *
 * <pre>
 * i64 time of the first row, i64 time of packing (both ns since 1970), i32 partition, i32 n, i32 h (bytes of headers),
 * u16 t, topic (t bytes of UTF-8), i64 offset[n], i64 timestamp_ms[n], i32 key length[n], i32 value length[n]
 * (-1: null), i32 header length[n] (only if h > 0), all keys, all values, all headers
 * </pre>
 *
 * <p>A record's headers are {@code u16 count}, then per header {@code i32 length | name | i32 length | value}.
 *
 * <p>The thread that reads Spark's iterator cannot know whether another row follows at once, so a second thread sends
 * what lies there: as soon as no row came for a moment, but not before the linger time has passed since the last message
 * and the worker is free. A row that comes alone goes out at once; under load messages grow instead of queueing, and what
 * a message costs is shared by more records.
 *
 * <p>A worker whose front is stopped leaves messages unanswered; then no more rows are pulled, until it answers or the
 * epoch's time is over: an epoch's end must not wait for a front (R8). Spark's reader ends by itself when its time is
 * over, so the little that is pulled after that is bounded.
 */
final class RowPacker implements Feed {
  private static final long QUIET_NANOS = 100_000;
  /** More messages than these are not left unanswered: what is under way must be enough to keep the worker busy. */
  private static final int MAX_UNANSWERED = 4;
  private static final long LOOK_NANOS = 2_000_000;

  private final Iterator<Row> rows;
  private final int maxRows;
  private final int maxBytes;
  private final long lingerNanos;
  private final long epochEndNanos;
  private final Object lock = new Object();

  private final long[] offsets;
  private final long[] timestamps;
  private final int[] keyLengths;
  private final int[] valueLengths;
  private final int[] headerLengths;
  private final Bytes keys = new Bytes();
  private final Bytes values = new Bytes();
  private final Bytes headers = new Bytes();
  private int count;
  private long firstNanos;
  private long firstTime;
  private long flushedNanos = System.nanoTime();
  private Channel channel;
  private String topic;
  private int partition;
  /** Messages the worker has not dealt with yet. Counted before they are written, as its answer may be quick. */
  private final AtomicInteger unanswered = new AtomicInteger();

  private volatile Thread feeder;
  private volatile Thread flusher;
  private boolean over;
  private IOException flushError;

  RowPacker(Iterator<Row> rows, int maxRows, int maxBytes, long lingerMicros, long epochMillis) {
    this.epochEndNanos = System.nanoTime() + epochMillis * 1_000_000;
    this.rows = rows;
    this.maxRows = maxRows;
    this.maxBytes = maxBytes;
    this.lingerNanos = lingerMicros * 1_000;
    this.offsets = new long[maxRows];
    this.timestamps = new long[maxRows];
    this.keyLengths = new int[maxRows];
    this.valueLengths = new int[maxRows];
    this.headerLengths = new int[maxRows];
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
    feeder = Thread.currentThread();
    flusher = new Thread(this::flushWhenQuiet, Thread.currentThread().getName() + "-flush");
    flusher.setDaemon(true);
    flusher.start();
    try {
      add(first);
      while (rows.hasNext()) {
        awaitAnswers();
        add(rows.next());
      }
      synchronized (lock) {
        flush();
      }
    } finally {
      synchronized (lock) {
        over = true;
      }
      LockSupport.unpark(flusher);
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
    synchronized (lock) {
      if (flushError != null) {
        throw flushError;
      }
      if (row.getInt(1) != partition || !row.getString(0).equals(topic)) {
        throw new IllegalStateException(
            "a task of level 0 got rows of " + topic + "-" + partition + " and of " + row.getString(0) + "-"
                + row.getInt(1) + "; the Kafka source's minPartitions and maxRecordsPerPartition must not be set");
      }
      byte[] key = (byte[]) row.get(4);
      byte[] value = (byte[]) row.get(5);
      int size = (key == null ? 0 : key.length) + (value == null ? 0 : value.length);
      if (count > 0 && keys.size() + values.size() + headers.size() + size > maxBytes) {
        flush();
      }
      offsets[count] = row.getLong(2);
      timestamps[count] = row.getLong(3);
      keyLengths[count] = keys.add(key);
      valueLengths[count] = values.add(value);
      if (row.length() > 6) {
        headerLengths[count] = headers.addHeaders(row.isNullAt(6) ? List.of() : row.getList(6));
      }
      count++;
      if (count == maxRows) {
        flush();
      } else if (count == 1) {
        firstNanos = System.nanoTime();
        firstTime = now();
        LockSupport.unpark(flusher);
      }
    }
  }

  /** Called by the thread that reads the worker's answers: it must not wait for one that writes, so takes no lock. */
  @Override
  public void taken() {
    unanswered.decrementAndGet();
    LockSupport.unpark(flusher);
    LockSupport.unpark(feeder);
  }

  private void flushWhenQuiet() {
    try {
      int seen = 0;
      while (true) {
        long waitNanos = QUIET_NANOS;
        synchronized (lock) {
          if (over) {
            return;
          }
          if (count == 0 || unanswered.get() > 0) {
            waitNanos = Long.MAX_VALUE;
            seen = 0;
          } else {
            long lingerLeft = flushedNanos + lingerNanos - System.nanoTime();
            if (lingerLeft > 0) {
              waitNanos = lingerLeft;
            } else if (count == seen || System.nanoTime() - firstNanos >= lingerNanos) {
              flush();
              waitNanos = lingerNanos;
            }
            seen = count;
          }
        }
        LockSupport.parkNanos(this, waitNanos);
      }
    } catch (IOException error) {
      synchronized (lock) {
        flushError = error;
      }
    }
  }

  private void flush() throws IOException {
    if (count == 0) {
      return;
    }
    byte[] name = topic.getBytes(StandardCharsets.UTF_8);
    boolean withHeaders = headers.size() > 0;
    ByteBuffer head =
        ByteBuffer.allocate(30 + name.length + count * (withHeaders ? 28 : 24)).order(ByteOrder.LITTLE_ENDIAN);
    head.putLong(firstTime).putLong(now()).putInt(partition).putInt(count).putInt(headers.size());
    head.putShort((short) name.length).put(name);
    put(head, offsets);
    put(head, timestamps);
    put(head, keyLengths);
    put(head, valueLengths);
    if (withHeaders) {
      put(head, headerLengths);
    }
    unanswered.incrementAndGet();
    channel.write(Kind.ROWS, head.flip(), keys.take(), values.take(), headers.take());
    count = 0;
    flushedNanos = System.nanoTime();
  }

  private void put(ByteBuffer to, long[] column) {
    for (int i = 0; i < count; i++) {
      to.putLong(column[i]);
    }
  }

  private void put(ByteBuffer to, int[] column) {
    for (int i = 0; i < count; i++) {
      to.putInt(column[i]);
    }
  }

  private static long now() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000_000L + now.getNano();
  }

  /** Bytes of one column, one record after the other. */
  private static final class Bytes extends ByteArrayOutputStream {
    /** Appends them and returns their length, -1 for null. */
    int add(byte[] bytes) {
      if (bytes == null) {
        return -1;
      }
      write(bytes, 0, bytes.length);
      return bytes.length;
    }

    /** Appends a record's headers and returns their length, 0 where there are none. */
    int addHeaders(List<Row> headers) {
      if (headers.isEmpty()) {
        return 0;
      }
      int before = size();
      writeNumber(headers.size(), 2);
      for (Row header : headers) {
        byte[] name = header.getString(0).getBytes(StandardCharsets.UTF_8);
        byte[] value = (byte[]) header.get(1);
        writeNumber(name.length, 4);
        write(name, 0, name.length);
        writeNumber(value == null ? -1 : value.length, 4);
        add(value);
      }
      return size() - before;
    }

    private void writeNumber(int number, int bytes) {
      for (int i = 0; i < bytes; i++) {
        write(number >>> (8 * i));
      }
    }

    /** What was added since the last call, valid until the next {@code add}. */
    ByteBuffer take() {
      ByteBuffer taken = ByteBuffer.wrap(buf, 0, count);
      count = 0;
      return taken;
    }
  }
}
