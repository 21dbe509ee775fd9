# What is there already and is used as it is: the four variables `existing_…`. All else in this module reads the locals here,
# whether a thing was there or is made.

data "aws_vpc" "existing" {
  count = var.existing_vpc == null ? 0 : 1

  id = var.existing_vpc.id
}

data "aws_subnet" "existing" {
  for_each = var.existing_vpc == null ? toset([]) : toset(var.existing_vpc.subnet_ids)

  id = each.key

  lifecycle {
    postcondition {
      condition     = self.vpc_id == var.existing_vpc.id
      error_message = "Subnet ${each.key} is in another VPC than ${var.existing_vpc.id}."
    }
  }
}

data "aws_s3_bucket" "existing" {
  count = var.existing_bucket == null ? 0 : 1

  bucket = var.existing_bucket.name

  lifecycle {
    postcondition {
      condition     = self.bucket_region == var.region
      error_message = "Bucket ${var.existing_bucket.name} is in ${self.bucket_region}: hosts reach S3 of ${var.region} alone."
    }
  }
}

locals {
  # Who owns this key can read everything: disks, snapshots, secrets, logs.
  key_arn = var.existing_kms_key_arn != null ? var.existing_kms_key_arn : aws_kms_key.this[0].arn

  network = var.existing_vpc == null ? module.network[0].network : {
    name          = var.name
    vpc_id        = var.existing_vpc.id
    cidr          = data.aws_vpc.existing[0].cidr_block
    services_cidr = var.existing_vpc.endpoints == "none" ? "0.0.0.0/0" : data.aws_vpc.existing[0].cidr_block
    subnets       = [for id in var.existing_vpc.subnet_ids : { id = id, cidr = data.aws_subnet.existing[id].cidr_block, zone = data.aws_subnet.existing[id].availability_zone }]
  }

  bucket = var.existing_bucket == null ? module.object_store[0].bucket : {
    name     = var.existing_bucket.name
    arn      = data.aws_s3_bucket.existing[0].arn
    prefix   = var.existing_bucket.prefix
    key_arn  = local.key_arn
    key_arns = distinct(compact([local.key_arn, var.existing_bucket.kms_key_arn]))
  }
}
