output "url" {
  description = "Where snapshots go."
  value       = "s3://${aws_s3_bucket.this.bucket}"

  depends_on = [aws_s3_bucket_policy.this, aws_s3_bucket_server_side_encryption_configuration.this]
}

output "endpoint" {
  description = "The S3 server; none, as it is Amazon's own."
  value       = null
}

output "bucket" {
  description = "The bucket, as IAM policies and other modules name it."
  value       = { name = aws_s3_bucket.this.bucket, arn = local.arn, prefix = "", key_arn = var.key_arn, key_arns = [var.key_arn] }

  depends_on = [aws_s3_bucket_versioning.this, aws_s3_bucket_public_access_block.this]
}
