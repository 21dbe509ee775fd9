package io.lowtide;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Iterator;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Row;

/** The feed of a later level: frames, passed on unopened. */
final class FramePasser implements Feed {
  private final Iterator<Row> rows;

  FramePasser(Iterator<Row> rows) {
    this.rows = rows;
  }

  @Override
  public void run(Opener opener) throws IOException {
    Channel channel = opener.open(Integer.toString(TaskContext.getPartitionId()));
    while (rows.hasNext()) {
      channel.write(Kind.FRAME, ByteBuffer.wrap((byte[]) rows.next().get(1)));
    }
  }
}
