# What hosts install: files of this machine, which are put into the bucket, or objects that are there.

locals {
  files = { for name, item in var.software : name => item.file if item.file != null }
  # An object's name tells its content, so that hosts that start meanwhile get what they expect.
  digests = { for name, item in var.software : name => item.file != null ? filesha256(item.file) : item.sha256 }
  objects = {
    for name, item in var.software :
    name => item.file != null ? "${local.bucket.prefix}software/${substr(local.digests[name], 0, 12)}/${basename(item.file)}" : item.object
  }
}

resource "aws_s3_object" "software" {
  for_each = local.files

  bucket                 = local.bucket.name
  key                    = local.objects[each.key]
  source                 = each.value
  source_hash            = local.digests[each.key]
  checksum_algorithm     = "SHA256"
  server_side_encryption = "aws:kms"
  kms_key_id             = local.key_arn

  lifecycle {
    create_before_destroy = true
  }
}

locals {
  # Known once all is in the bucket.
  software = { for name, object in local.objects : name => try(aws_s3_object.software[name].key, object) }
}
