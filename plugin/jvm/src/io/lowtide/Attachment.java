package io.lowtide;

/** What a task is to its worker: the job's life, the level, the epoch, and which of how many tasks of its level. */
record Attachment(long incarnation, int level, long epoch, int index, int count) {}
