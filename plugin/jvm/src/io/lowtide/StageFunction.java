package io.lowtide;

import java.util.Iterator;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** One level of a flow as a Spark stage: gives a task's rows to its worker and brings back what the worker emits. */
public final class StageFunction implements MapPartitionsFunction<Row, Row> {
  private static final long serialVersionUID = 1L;
  private static final StructType FRAMES =
      new StructType().add("target", DataTypes.IntegerType, false).add("frame", DataTypes.BinaryType, false);

  private final long incarnation;
  private final int level;
  private final int maxRows;
  private final int maxBytes;
  private final long epochMillis;

  private StageFunction(long incarnation, int level, int maxRows, int maxBytes, long epochMillis) {
    this.incarnation = incarnation;
    this.level = level;
    this.maxRows = maxRows;
    this.maxBytes = maxBytes;
    this.epochMillis = epochMillis;
  }

  /**
   * The dataset of frames {@code (target, frame)} that level 0 makes of Kafka rows {@code (topic, partition, offset,
   * timestamp in ms, key, value[, headers])}; a message to the worker has {@code maxRows} and {@code maxBytes} at most. The
   * {@code incarnation} is the life of the job, 0 for a {@link Rehearsal}; an epoch lasts {@code epochMillis}.
   */
  public static Dataset<Row> source(
      Dataset<Row> rows, long incarnation, int maxRows, int maxBytes, long epochMillis) {
    return rows.mapPartitions(
        new StageFunction(incarnation, 0, maxRows, maxBytes, epochMillis), Encoders.row(FRAMES));
  }

  /** The dataset of frames that a later level makes of the frames sent to it. */
  public static Dataset<Row> level(Dataset<Row> frames, long incarnation, int level) {
    return frames.mapPartitions(new StageFunction(incarnation, level, 0, 0, 0), Encoders.row(FRAMES));
  }

  @Override
  public Iterator<Row> call(Iterator<Row> rows) {
    if (incarnation == Rehearsal.INCARNATION) {
      return new Rehearsal(rows, level);
    }
    TaskContext context = TaskContext.get();
    long epoch = Long.parseLong(context.getLocalProperty("streaming.sql.batchId"));
    StageTask task = new StageTask(context, ExecutorSide.current(), new Attachment(incarnation, level, epoch, context.partitionId(), context.numPartitions()));
    task.start(level == 0 ? new RowPacker(rows, maxRows, maxBytes, epochMillis) : new FramePasser(rows));
    return task;
  }
}
