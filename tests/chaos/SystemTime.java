package org.apache.kafka.common.utils;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.errors.TimeoutException;

/** Stands in for Kafka's own: the time of day is as many ms off as a file beside this class says. */
class SystemTime implements Time {
    private static final long LOOK_EVERY_NS = TimeUnit.MILLISECONDS.toNanos(20);
    private static final SystemTime ONLY = new SystemTime();

    private final Path file =
            Path.of(SystemTime.class.getProtectionDomain().getCodeSource().getLocation().getPath(), "offset_ms");
    private volatile long offsetMs = read();
    private volatile long lookedNs = System.nanoTime();

    private SystemTime() {}

    public static SystemTime getSystemTime() {
        return ONLY;
    }

    @Override
    public long milliseconds() {
        long now = System.nanoTime();
        if (now - lookedNs > LOOK_EVERY_NS) {
            lookedNs = now;
            offsetMs = read();
        }
        return System.currentTimeMillis() + offsetMs;
    }

    @Override
    public long nanoseconds() {
        return System.nanoTime();
    }

    @Override
    public void sleep(long ms) {
        Utils.sleep(ms);
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) throws InterruptedException {
        synchronized (object) {
            while (!condition.get()) {
                long left = deadlineMs - milliseconds();
                if (left <= 0) {
                    throw new TimeoutException("Condition not satisfied before deadline");
                }
                object.wait(left);
            }
        }
    }

    private long read() {
        try {
            return Long.parseLong(Files.readString(file).trim());
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
