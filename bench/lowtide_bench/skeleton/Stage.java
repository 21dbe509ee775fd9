package io.lowtide.skeleton;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * One level of the skeleton: each task sends its rows to the Python worker of its partition, which listens on loopback,
 * and returns what that sends back as rows {@code (target, frame)}.
 *
 * <p>To the worker goes {@code i32 length | frame}, back comes {@code i32 target | i32 length | frame}, big-endian. A
 * frame is {@code i32 n | i64 timestamp_ms[n] | i32 length[n] | values}, in this machine's byte order. The connection
 * lasts for an epoch: the task ends its side when Spark's input is over, the worker its own when all is sent.
 */
public final class Stage implements MapPartitionsFunction<Row, Row> {
  private static final long serialVersionUID = 1L;
  private static final StructType FRAMES =
      new StructType().add("target", DataTypes.IntegerType).add("frame", DataTypes.BinaryType);

  private final int[] ports;
  private final boolean packs;

  private Stage(String ports, boolean packs) {
    this.ports = Arrays.stream(ports.split(",")).mapToInt(Integer::parseInt).toArray();
    this.packs = packs;
  }

  /** The level that reads rows {@code (timestamp_ms, value)}; ports: of its workers by partition, with commas. */
  public static Dataset<Row> source(Dataset<Row> rows, String ports) {
    return rows.mapPartitions(new Stage(ports, true), Encoders.row(FRAMES));
  }

  /** A later level, which reads rows {@code (target, frame)}. */
  public static Dataset<Row> level(Dataset<Row> frames, String ports) {
    return frames.mapPartitions(new Stage(ports, false), Encoders.row(FRAMES));
  }

  /** What the last level returns goes nowhere; its workers have their own way into Kafka. */
  public static final class Nowhere extends ForeachWriter<Row> {
    private static final long serialVersionUID = 1L;

    @Override
    public boolean open(long partition, long epoch) {
      return true;
    }

    @Override
    public void process(Row row) {}

    @Override
    public void close(Throwable error) {}
  }

  @Override
  public Iterator<Row> call(Iterator<Row> rows) throws IOException {
    TaskContext task = TaskContext.get();
    InetSocketAddress address = new InetSocketAddress(InetAddress.getLoopbackAddress(), ports[task.partitionId()]);
    SocketChannel worker = SocketChannel.open(address);
    worker.setOption(StandardSocketOptions.TCP_NODELAY, true);
    Passing passing = new Passing(task, worker, rows);
    passing.begin(packs ? new Packer(worker, rows)::run : passing::pass);
    return passing;
  }

  private interface Feed {
    /** Writes all that Spark's input has. */
    void run() throws IOException;
  }

  private static void write(SocketChannel worker, ByteBuffer... parts) throws IOException {
    while (parts[parts.length - 1].hasRemaining()) {
      worker.write(parts);
    }
  }

  /** A task at work: one thread feeds the worker from Spark's input, the task's own returns what comes back. */
  private static final class Passing implements Iterator<Row> {
    private static final int BUFFER_BYTES = 1 << 16;
    private static final long JOIN_MS = 10_000;

    private final TaskContext task;
    private final SocketChannel worker;
    private final Iterator<Row> rows;
    private final DataInputStream in;
    private volatile Throwable fault;
    private volatile boolean fed;
    private volatile boolean closing;
    private Row next;
    private boolean ended;

    Passing(TaskContext task, SocketChannel worker, Iterator<Row> rows) {
      this.task = task;
      this.worker = worker;
      this.rows = rows;
      this.in = new DataInputStream(new BufferedInputStream(Channels.newInputStream(worker), BUFFER_BYTES));
    }

    void begin(Feed feed) {
      Thread feeder = new Thread(() -> feed(feed), "skeleton-feed-" + task.partitionId());
      feeder.setDaemon(true);
      task.addTaskCompletionListener((org.apache.spark.util.TaskCompletionListener) done -> close(feeder));
      feeder.start();
    }

    private void feed(Feed feed) {
      TaskContext$.MODULE$.setTaskContext(task);
      try {
        feed.run();
        fed = true;
        worker.shutdownOutput();
      } catch (Throwable error) {
        if (!closing) {
          fault = error;
          disconnect();
        }
      } finally {
        TaskContext$.MODULE$.unset();
      }
    }

    void pass() throws IOException {
      ByteBuffer head = ByteBuffer.allocateDirect(Integer.BYTES);
      while (rows.hasNext()) {
        byte[] frame = (byte[]) rows.next().get(1);
        write(worker, head.clear().putInt(frame.length).flip(), ByteBuffer.wrap(frame));
      }
    }

    /** Spark takes back what the feeder reads from when the task is over, so the feeder has to be gone by then. */
    private void close(Thread feeder) {
      boolean interrupted = Thread.interrupted();
      closing = true;
      feeder.interrupt();
      disconnect();
      try {
        feeder.join(JOIN_MS);
      } catch (InterruptedException stop) {
        interrupted = true;
      }
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }

    private void disconnect() {
      try {
        worker.close();
      } catch (IOException gone) {
        // It is not needed any more.
      }
    }

    @Override
    public boolean hasNext() {
      if (next == null && !ended) {
        try {
          next = read();
          ended = next == null;
        } catch (IOException error) {
          task.killTaskIfInterrupted();
          throw new IllegalStateException("the skeleton's worker is lost", fault == null ? error : fault);
        }
      }
      return next != null;
    }

    /** The next row; null when the worker has sent all that was to come. */
    private Row read() throws IOException {
      int target;
      try {
        target = in.readInt();
      } catch (EOFException end) {
        if (!fed) {
          throw end;
        }
        return null;
      }
      byte[] frame = new byte[in.readInt()];
      in.readFully(frame);
      return RowFactory.create(target, frame);
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

  /**
   * Makes frames of rows. Who reads Spark's input cannot know whether another row follows at once, so a second thread
   * sends what lies there: a moment after its first row, and not before the linger time has passed since the last frame.
   */
  private static final class Packer {
    private static final int MOST_ROWS = 8_192;
    private static final int MOST_BYTES = 1 << 19;
    private static final long LINGER_NANOS = 2_000_000;
    private static final long MOMENT_NANOS = 200_000;

    private final SocketChannel worker;
    private final Iterator<Row> rows;
    private final long[] stamps = new long[MOST_ROWS];
    private final byte[][] values = new byte[MOST_ROWS][];
    private int count;
    private int bytes;
    private long sentNanos = System.nanoTime();
    private boolean over;
    private IOException fault;

    Packer(SocketChannel worker, Iterator<Row> rows) {
      this.worker = worker;
      this.rows = rows;
    }

    void run() throws IOException {
      Thread sender = new Thread(this::sendSoon, Thread.currentThread().getName() + "-send");
      sender.setDaemon(true);
      sender.start();
      try {
        while (rows.hasNext()) {
          Row row = rows.next();
          add(row.getLong(0), (byte[]) row.get(1));
        }
      } finally {
        synchronized (this) {
          over = true;
          notifyAll();
        }
      }
      send();
    }

    private synchronized void add(long stamp, byte[] value) throws IOException {
      if (fault != null) {
        throw fault;
      }
      if (count == MOST_ROWS || bytes + value.length > MOST_BYTES) {
        send();
      }
      stamps[count] = stamp;
      values[count] = value;
      count++;
      bytes += value.length;
      if (count == 1) {
        notifyAll();
      }
    }

    private void sendSoon() {
      try {
        while (true) {
          long waitNanos;
          synchronized (this) {
            while (count == 0 && !over) {
              wait();
            }
            if (over) {
              return;
            }
            waitNanos = Math.max(MOMENT_NANOS, sentNanos + LINGER_NANOS - System.nanoTime());
          }
          LockSupport.parkNanos(this, waitNanos);
          send();
        }
      } catch (InterruptedException nobodyDoes) {
        throw new IllegalStateException(nobodyDoes);
      } catch (IOException error) {
        synchronized (this) {
          fault = error;
        }
      }
    }

    private synchronized void send() throws IOException {
      if (count == 0) {
        return;
      }
      int length = Integer.BYTES + count * (Long.BYTES + Integer.BYTES) + bytes;
      ByteBuffer frame = ByteBuffer.allocate(Integer.BYTES + length).putInt(length).order(ByteOrder.nativeOrder());
      frame.putInt(count);
      for (int i = 0; i < count; i++) {
        frame.putLong(stamps[i]);
      }
      for (int i = 0; i < count; i++) {
        frame.putInt(values[i].length);
      }
      for (int i = 0; i < count; i++) {
        frame.put(values[i]);
        values[i] = null;
      }
      write(worker, frame.flip());
      count = 0;
      bytes = 0;
      sentNanos = System.nanoTime();
    }
  }
}
