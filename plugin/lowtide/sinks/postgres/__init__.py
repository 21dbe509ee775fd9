"""PostgreSQL as a store: rows, marks and floors become durable in one statement."""
