"""Jars: the Java shim, third-party jars, the JVM that runs them."""
