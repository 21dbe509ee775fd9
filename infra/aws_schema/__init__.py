"""The AWS provider's schemas, read from a published binding of it, and a provider that has nothing but them.

Terraform itself then checks `infra/terraform/aws`: an argument that does not exist, is missing or has another type is
refused, and `terraform test` runs with mocks. No call ever reaches AWS. README.md of that module says what this shows.
"""
