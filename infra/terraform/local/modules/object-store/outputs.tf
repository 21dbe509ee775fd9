output "url" {
  description = "Where snapshots go."
  value       = "s3://${var.bucket}"

  depends_on = [hosts_program.this]
}

output "endpoint" {
  description = "The S3 server."
  value       = "https://${var.host}:9000"
}

output "credentials" {
  description = "As an AWS credentials file."
  value       = "[default]\naws_access_key_id = lowtide\naws_secret_access_key = ${hosts_secret.this.hex}\n"
  sensitive   = true
}
