"""Order: the places of records, and batches of records with their places."""
