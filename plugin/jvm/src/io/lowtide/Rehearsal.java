package io.lowtide;

import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/**
 * A level without a worker: takes Spark's rows and lets them go, so that everything on their way is loaded and compiled
 * before a life needs it. The first level sends one empty frame, and the later ones pass it on, so that the shuffles have
 * been used too.
 */
final class Rehearsal implements Iterator<Row> {
  /** The incarnation of a query that is only rehearsed; lives count from 1. */
  static final long INCARNATION = 0;

  private final Iterator<Row> rows;
  private final boolean passes;
  private Row next;

  Rehearsal(Iterator<Row> rows, int level) {
    this.rows = rows;
    passes = level > 0;
    next = passes ? null : RowFactory.create(0, new byte[0]);
  }

  @Override
  public boolean hasNext() {
    while (next == null && rows.hasNext()) {
      Row row = rows.next();
      next = passes ? RowFactory.create(0, row.get(1)) : null;
    }
    return next != null;
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
