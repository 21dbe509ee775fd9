"""Delta and Iceberg tables: rows and position in one commit (R20)."""
