package io.lowtide;

import org.apache.spark.SparkConf;

/** Which Python runs where, by the rules PySpark users know. */
final class Interpreter {
  private Interpreter() {}

  /** The driver's: the one that started the job. */
  static String driver(SparkConf conf) {
    return conf.get("spark.lowtide.python", executor(conf));
  }

  /** The executors': {@code spark.pyspark.python}, else the environment's {@code PYSPARK_PYTHON}, else python3. */
  static String executor(SparkConf conf) {
    String byEnvironment = System.getenv("PYSPARK_PYTHON");
    return conf.get("spark.pyspark.python", byEnvironment == null ? "python3" : byEnvironment);
  }
}
