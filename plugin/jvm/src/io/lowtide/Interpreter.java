package io.lowtide;

import org.apache.spark.SparkConf;

/** Which Python runs where, by the rules PySpark users know, and how long it may take to start. */
final class Interpreter {
  static final String WAY_OUT =
      "Install Lowtide's environment there, and set PYSPARK_PYTHON to its interpreter";

  private Interpreter() {}

  /** How long a Python process may take until it is ready. */
  static long startLimitMs(SparkConf conf) {
    return conf.getLong("spark.lowtide.startLimitMs", 20_000);
  }

  /** How long a worker may take until it has taken its task, with the import of the flow's modules. */
  static long attachLimitMs(SparkConf conf) {
    return conf.getLong("spark.lowtide.attachLimitMs", 60_000);
  }

  /** The driver's: the one that started the job. */
  static String driver(SparkConf conf) {
    return conf.get("spark.lowtide.python", executor(conf));
  }

  /** The executors', as the driver says it: {@code spark.pyspark.python}, else its PYSPARK_PYTHON, else python3. */
  static String executor(SparkConf conf) {
    String byEnvironment = System.getenv("PYSPARK_PYTHON");
    return conf.get("spark.pyspark.python", byEnvironment == null ? "python3" : byEnvironment);
  }
}
