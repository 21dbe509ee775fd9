"""An exhaustive model of commit and recovery: the real classes, in every order that a small job can have.

explorer    every state that can be reached, each once, and the shortest way to what is wrong
scripts     code that asks the world something, run again and again from the answers that it was given
world       what outlives a life, as values: ZooKeeper's nodes, the store, Kafka; and what each question does to it
access      ZooKeeper, the store and Kafka's client, as the real code sees them
machine     the workers of a life, as far as no other life sees what they do
lives       a life's driver, its deliveries and its snapshots; somebody who sweeps
laws        what must hold after each step
"""
