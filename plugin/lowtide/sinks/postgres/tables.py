"""The tables in which PostgreSQL keeps what is durable: by lane its mark, and the floors of a job."""

from __future__ import annotations

MAKE = (
    "create schema if not exists lowtide",
    # One row for each job; `id` tells these tables from others that have their name.
    """create table if not exists lowtide.jobs (
    job text primary key, id uuid not null default gen_random_uuid(), owner text not null)""",
    # `lane` is `names.number_of` a strand.
    # Updated with each delivery, in place: that is what the room in each page is for.
    """create table if not exists lowtide.lanes (
    job text, generation int, sink text, lane int, claim bigint not null, last bytea not null,
    primary key (job, generation, sink, lane)) with (fillfactor = 10)""",
    """create table if not exists lowtide.floors (
    job text, front int, from_offset bigint, tick bigint, cap bool,
    primary key (job, front, from_offset, tick, cap))""",
    # Rows that a table refuses; `place` is the record's in the log.
    """create table if not exists lowtide.refused (
    job text not null, generation int not null, sink text not null, lane int not null, place text not null,
    record json not null, state text not null, reason text not null, at timestamptz not null default now())""",
)
"""Statements that make the tables if they are not there."""
THERE = """select count(*) = 4 from unnest(array['jobs', 'lanes', 'floors', 'refused']) t
    where to_regclass('lowtide.' || t) is not null"""
MARKED = "select to_regclass('lowtide.lanes') is not null and to_regclass('lowtide.floors') is not null"
LOCK = "select pg_advisory_xact_lock(hashtext('lowtide tables'))::text"
"""Held while the tables are made: `if not exists` does not keep two sessions from making them at once."""
JOB = "select id::text, owner from lowtide.jobs where job = $1"
LANES = "select sink, lane, claim, last from lowtide.lanes where job = $1 and generation = $2"
FLOORS = "select front, from_offset, tick, cap from lowtide.floors where job = $1"
CLAIM = """
    insert into lowtide.lanes (job, generation, sink, lane, claim, last)
    select $1, $2, l.sink, l.lane, $3, '' from unnest($4::text[], $5::int[]) l(sink, lane)
    on conflict (job, generation, sink, lane) do update set claim = excluded.claim where lanes.claim < excluded.claim
"""
"""Claims lanes for a life, unless a newer one has."""
CLAIM_EARLIER = "update lowtide.lanes set claim = $3 where job = $1 and generation = $2 and claim < $3"
"""Claims what earlier lives had, who may have had other workers, and so other strands."""
