"""Calls of outside services: what asks them, without any knowledge of plans, order keys or Kafka.

A host gives questions to its caller process and takes answers from it (`line`, `process`); there the engine asks them
(`asking`), as it does for one question after the other where there is no host (`once`).
"""
