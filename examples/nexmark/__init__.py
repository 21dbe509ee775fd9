"""Nexmark's queries 0 to 8 as flows: a file for each, beside the SQL that it answers; `docs/nexmark.md` says more."""
