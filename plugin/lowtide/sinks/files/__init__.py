"""Files in a folder or in S3, as a staged sink: each record is in exactly one file, and no file ever changes."""
