package io.lowtide;

import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/** The sink that Real-Time Mode asks for. Workers deliver records themselves, so nothing ever reaches it. */
public final class Discard extends ForeachWriter<Row> {
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
