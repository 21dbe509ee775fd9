"""What the tests of every folder may use."""

pytest_plugins = ["s3_fixtures"]
