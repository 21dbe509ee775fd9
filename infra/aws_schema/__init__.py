"""The AWS provider's schemas, read from a published binding of it, and a provider that has nothing but them.

Terraform itself then checks `infra/terraform/aws`: it refuses an argument that does not exist, is missing or has
another type, and `terraform test` runs with mocks. No call ever reaches AWS. That module's README.md explains what this
shows.
"""
